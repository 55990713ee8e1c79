"""Files whose content is cut, foreign or absurd: an error, or a row that says what is lost."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gapscope.ingest.discover import Found
from gapscope.ingest.stage import stage
from tests.hostile.captures import (
    Rows,
    kineto,
    nsys,
    sample_text,
    with_kernels,
    write_kineto,
    write_nsys,
)
from tests.hostile.conftest import Attempt

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
INT64 = 2**63 - 1


# --- cut at every tenth -------------------------------------------------------------------------


def cut_in_tenths(directory: Path, name: str, whole: bytes) -> dict[str, int]:
    """Nine files that end early, each with the rank that it is declared to be."""
    directory.mkdir()
    stem, _, suffix = name.partition(".")
    declared = {}
    for tenth in range(1, 10):
        file = directory / f"{stem}{tenth}.{suffix}"
        file.write_bytes(whole[: len(whole) * tenth // 10])
        declared[file.name] = tenth
    return declared


@pytest.mark.parametrize("suffix", ["json", "json.gz", "sqlite"])
def test_cut_at_every_tenth(attempt: Attempt, tmp_path: Path, suffix: str) -> None:
    if suffix == "sqlite":
        database = write_nsys(tmp_path / "whole.sqlite", nsys(steps=400))
        whole = database.read_bytes()
        database.unlink()
    else:
        whole = sample_text() if suffix == "json" else gzip.compress(sample_text(), mtime=0)
    declared = cut_in_tenths(tmp_path / "in", f"cut.{suffix}", whole)
    # Each alone would take nine times as long; together each must still be accounted for.
    outcome = attempt(tmp_path / "in", ranks=declared)
    if outcome.error is not None:
        assert suffix == "sqlite"  # its schema names pages that are gone, wherever it is cut
        for name in declared:
            error = attempt(tmp_path / "in" / name).error
            assert error is not None
            assert name in error.message
        return
    for name, rank in declared.items():
        losses = {
            check
            for of, check, status, _ in outcome.quality
            if status in ("warn", "fail")
            and ((of == rank and "trunc" in check) or check == f"source_failed:{name}")
        }
        assert losses, f"nothing says that {name} is cut: {outcome.notable()}"


# --- foreign and empty --------------------------------------------------------------------------

TEXT = json.dumps(kineto()).encode()
PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)


@pytest.mark.parametrize(
    ("name", "content", "slug"),
    [
        ("t.json", b"", "empty-input"),
        ("t.json.gz", b"", "empty-input"),
        ("t.sqlite", b"", "empty-input"),
        ("t.json", b" \n\t", "unknown-format"),
        ("t.json", b"{", "unknown-format"),
        ("t.json", b"5", "unknown-format"),
        ("t.json", b"<html></html>", "unknown-format"),
        ("t.json", PNG, "unknown-format"),
        ("t.sqlite", PNG, "unknown-format"),
        ("t.json.gz", gzip.compress(PNG, mtime=0), "unknown-format"),
        ("t.json.gz", b"\x1f\x8b" + b"\xff" * 99, "truncated-input"),
        ("t.json", TEXT.decode().encode("utf-16"), "unknown-format"),
        ("t.json", b"[" * 100_000, "unknown-format"),
        ("t.json", b'{"traceEvents":' + b'[{"a":' * 50_000, "truncated-input"),
        ("t.json", b'{"schemaVersion":1,"traceEvents":null}', "not-a-kineto-trace"),
        ("t.json", b'{"schemaVersion":1,"traceEvents":7}', "not-a-kineto-trace"),
        ("t.json", b'{"schemaVersion":1,"traceEvents":"x"}', "not-a-kineto-trace"),
        ("t.json", b'{"schemaVersion":1,"traceEvents":[]}', "empty-input"),
        ("t.json", b'{"schemaVersion":1,"traceEvents":[null,1,"x",[]]}', "not-a-kineto-trace"),
        ("t.json", TEXT.replace(b'"traceEvents"', b'"traceEvents":[],"traceEvents"'), "empty-input"),
        ("t.sqlite", b"SQLite format 3\0", "corrupt-export"),
        ("t.nsys-rep", b"no report", "nsys-"),
    ],
    ids=lambda value: str(value)[:24] if isinstance(value, str) else None,
)  # fmt: skip
def test_nothing_to_read(
    attempt: Attempt, tmp_path: Path, name: str, content: bytes, slug: str
) -> None:
    (tmp_path / name).write_bytes(content)
    error = attempt(tmp_path / name).error
    assert error is not None
    assert error.slug.startswith(slug)
    assert name in error.message


def test_databases_that_are_no_export(attempt: Attempt, tmp_path: Path) -> None:
    whole = write_nsys(tmp_path / "t.sqlite").read_bytes()
    (tmp_path / "t.sqlite").write_bytes(whole[:100])
    error = attempt(tmp_path / "t.sqlite").error
    assert error is not None
    assert error.slug == "corrupt-export"
    write_nsys(tmp_path / "other.sqlite", {"people": [{"name": "x"}]})
    error = attempt(tmp_path / "other.sqlite").error
    assert error is not None
    assert error.slug == "unknown-format"
    write_nsys(tmp_path / "meta.sqlite", {"META_DATA_EXPORT": [{"name": "a", "value": "b"}]})
    error = attempt(tmp_path / "meta.sqlite").error
    assert error is not None
    assert error.slug == "no-cuda-trace"


def test_a_view_that_never_ends_is_not_read(attempt: Attempt, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "t.sqlite")
    connection.execute("CREATE TABLE StringIds(id, value)")
    connection.execute(
        f"CREATE VIEW {KERNEL} AS WITH RECURSIVE a(start) AS (SELECT 1 UNION ALL "
        "SELECT start + 1 FROM a) SELECT start, start AS end FROM a"
    )
    connection.commit()
    connection.close()
    error = attempt(tmp_path / "t.sqlite").error
    assert error is not None
    assert error.slug == "not-an-nsys-export"


def test_the_content_decides_not_the_name(attempt: Attempt, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_bytes(gzip.compress(json.dumps(kineto(0)).encode()))
    (tmp_path / "in" / "b.json.gz").write_text(json.dumps(kineto(1)))
    write_nsys(tmp_path / "in" / "c.json", nsys(2))
    (tmp_path / "in" / "d.sqlite").write_bytes(b"\xef\xbb\xbf" + json.dumps(kineto(3)).encode())
    outcome = attempt(tmp_path / "in")
    assert outcome.error is None
    assert {rank: rows["gpu_op"] for rank, rows in outcome.rows.items()} == {0: 2, 1: 2, 2: 2, 3: 2}


# --- values of Kineto ---------------------------------------------------------------------------


def literal(field: str, text: bytes) -> bytes:
    """A trace whose kernels have this text as the value of a field."""
    return json.dumps(with_kernels(**{field: "@@"})).encode().replace(b'"@@"', text)


UNREADABLE = [
    ("stream", b"[" * 100_000 + b"]" * 100_000),
    ("dur", b"1e400"), ("dur", b"1e30"), ("ts", b"1e400"), ("ts", str(10**40).encode()),
    ("ts", b"9000000000000000000"), ("ts", b"9e15"), ("ts", b"-9e15"), ("ts", b"1e999999999999"),
    ("ts", b"NaN"), ("correlation", b"18446744073709551615"), ("stream", b"18446744073709551615"),
    ("stream", b'"x"'), ("grid", b'[1,"x",null]'), ("device", b"99999999999999"),
    ("pid", b"{}"), ("name", b"7"), ("ph", b"7"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "text"), UNREADABLE, ids=lambda value: str(value)[:20])
def test_kernels_that_cannot_be_read_are_counted(tmp_path: Path, field: str, text: bytes) -> None:
    file = tmp_path / "t.json"
    file.write_bytes(literal(field, text))
    staged = stage(Found(file, "kineto", file.name), tmp_path / "staged")
    assert staged.rows["gpu_op"] == 0
    said = pq.read_table(tmp_path / "staged" / "source_quality.parquet").to_pylist()
    details = {row["check_name"]: row["detail"] for row in said}
    assert details["unreadable_events"].startswith("2 of 9 events")


ODD = [
    ("dur", b"Infinity", "json_repaired"), ("dur", b"-5", "negative_durations"),
    ("dur", b"0", "interval_sanity"), ("ts", b"-0", ""), ("ts", b"1e-400", ""),
    ("ts", b"1000", ""), ("correlation", b"-1", "launch_join"), ("name", b"null", ""),
    ("name", b'"ge\xff\xfemm"', "json_repaired"), ("name", b'"ge\x01\x1bm\nm"', "json_repaired"),
    ("name", b'"ge\\ud800mm"', "json_repaired"), ("name", b'"ge\\u0000mm"', ""),
    ("pid", b'0, "ts": 5', ""),
]  # fmt: skip


def test_kernels_that_are_odd_stay(attempt: Attempt, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for rank, (field, text, _) in enumerate(ODD):
        trace = literal(field, text).replace(b'"rank": 0', f'"rank": {rank}'.encode())
        (tmp_path / "in" / f"{rank:02}.json").write_bytes(trace)
    outcome = attempt(tmp_path / "in")
    assert outcome.error is None
    for rank, (field, text, check) in enumerate(ODD):
        assert outcome.rows[rank]["gpu_op"] == 2, (field, text)
        said = {name for of, name, status, _ in outcome.quality if of == rank and status != "ok"}
        assert not check or check in said, (field, text)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("distributedInfo", {"rank": -1, "world_size": -7}),
        ("distributedInfo", {"rank": 2**62}),
        ("distributedInfo", {"rank": 10**30}),
        ("distributedInfo", {"rank": "1; DROP TABLE rank"}),
        ("distributedInfo", [1]),
        ("baseTimeNanoseconds", 10**30),
        ("deviceProperties", [1, {"id": "x", "name": 5}]),
    ],
)
def test_impossible_metadata_is_unknown(
    attempt: Attempt, tmp_path: Path, member: str, value: Any
) -> None:
    outcome = attempt(write_kineto(tmp_path / "t.json", {**kineto(), member: value}))
    assert outcome.error is None
    assert list(outcome.rows) == [0]
    if member == "distributedInfo":
        assert outcome.check("rank_number")[0] == "warn"
    if isinstance(value, int):
        assert "session start time" in outcome.check("impossible_identity")[1]


def test_times_at_both_ends_of_the_clock(attempt: Attempt, tmp_path: Path) -> None:
    trace = kineto()
    for number, event in enumerate(trace["traceEvents"]):
        if event.get("cat") == "kernel":
            event["ts"] = (-1) ** number * 2.2e15
    trace["traceEvents"] += [
        {**trace["traceEvents"][-1], "ts": number * 4e14, "dur": 1} for number in range(-5, 6)
    ]
    outcome = attempt(write_kineto(tmp_path / "t.json", trace))
    assert outcome.error is None
    assert outcome.rows[0]["gpu_op"] == 13


def test_sums_beyond_64_bits_are_an_error(attempt: Attempt, tmp_path: Path) -> None:
    tables = nsys(steps=40)
    for row in tables[KERNEL]:
        row["end"] = 2**61 - 1
    outcome = attempt(write_nsys(tmp_path / "t.sqlite", tables))
    if outcome.error is not None:
        assert outcome.error.slug == "impossible-values"
        assert "rank 0" in outcome.error.message


# --- values of Nsight Systems -------------------------------------------------------------------


def every(value: Callable[[Any], Any]) -> Callable[[Rows], None]:
    def change(tables: Rows) -> None:
        for rows in tables.values():
            for row in rows:
                row.update({name: value(old) for name, old in row.items()})

    return change


def kernels(**fields: Any) -> Callable[[Rows], None]:
    def change(tables: Rows) -> None:
        for row in tables[KERNEL]:
            row.update(fields)

    return change


def without_column(name: str) -> Callable[[Rows], None]:
    def change(tables: Rows) -> None:
        for rows in tables.values():
            for row in rows:
                row.pop(name, None)

    return change


LOSSES: list[tuple[str, Callable[[Rows], Any], str]] = [
    ("text in start", kernels(start="x"), "unreadable_values"),
    ("blob in start", kernels(start=b"\0"), "unreadable_values"),
    ("float in start", kernels(start=1.5), "unreadable_values"),
    ("no start", kernels(start=None), "unreadable_rows"),
    ("no end", kernels(end=None), "unreadable_rows"),
    ("end before start", kernels(end=0), "interval_sanity"),
    ("end too large", kernels(end=INT64), "unreadable_rows"),
    ("start too small", kernels(start=-INT64 - 1), "unreadable_rows"),
    ("both too large", kernels(start=INT64, end=INT64), "unreadable_rows"),
    ("all NULL", every(lambda _: None), "unreadable_rows"),
    ("all blobs", every(lambda _: b"\0\xff"), "unreadable_values"),
    ("all floats", every(lambda v: v + 0.5 if isinstance(v, int) else v), "unreadable_values"),
    ("all nonsense", every(lambda _: "x'; DROP TABLE rank; --"), "unreadable_values"),
    ("no kernels", lambda tables: tables.pop(KERNEL), "missing_gpu_op"),
    ("no calls", lambda tables: tables.pop("CUPTI_ACTIVITY_KIND_RUNTIME"), "missing_api_call"),
    ("no names", lambda tables: tables.pop("StringIds"), "missing_name"),
    ("no column start", without_column("start"), "unreadable_rows"),
    ("no column correlationId", without_column("correlationId"), "launch_join"),
    ("no column value", without_column("value"), "missing_name"),
    ("huge correlation", kernels(correlationId=INT64), "launch_join"),
    ("negative correlation", kernels(correlationId=-INT64), "launch_join"),
    ("huge ids", kernels(streamId=INT64, contextId=INT64, deviceId=INT64, gridX=INT64), ""),
    ("negative ids", kernels(streamId=-5, deviceId=-1, globalPid=-1), ""),
    ("one instant", kernels(start=5, end=5), ""),
]


def test_exports_with_odd_values(attempt: Attempt, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    declared = {}
    for rank, (_, change, _) in enumerate(LOSSES):
        tables = nsys(rank)
        change(tables)
        file = write_nsys(tmp_path / "in" / f"{rank:02}.sqlite", tables)
        declared[file.name] = rank
    outcome = attempt(tmp_path / "in", ranks=declared)
    assert outcome.error is None
    for rank, (what, _, check) in enumerate(LOSSES):
        said = {name for of, name, status, _ in outcome.quality if of == rank and status != "ok"}
        assert not check or check in said, what


def test_bits_flipped_in_a_database(attempt: Attempt, tmp_path: Path) -> None:
    import random

    whole = write_nsys(tmp_path / "t.sqlite", nsys(steps=60)).read_bytes()
    for seed in range(4):
        numbers = random.Random(seed)
        broken = bytearray(whole)
        for _ in range(60):
            broken[numbers.randrange(100, len(broken))] = numbers.randrange(256)
        (tmp_path / "t.sqlite").write_bytes(bytes(broken))
        attempt(tmp_path / "t.sqlite", force=True)
