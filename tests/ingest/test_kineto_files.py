"""The Kineto reader: files in the wild."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from gapscope.errors import GapscopeError
from gapscope.ingest.kineto import KinetoReader

from .kineto_trace import LAUNCH, Rows, event, kernel, read


def test_truncated_plain_and_gzip(trace: Path) -> None:
    text = json.dumps({"traceEvents": [LAUNCH, kernel(), kernel("cut")], "traceName": "x"})
    cut = text.index('"cut"')
    packed = gzip.compress(text.encode())
    for content in (text[:cut].encode(), packed[: len(packed) * 3 // 4]):
        rows, _ = read(trace, content)
        check = rows.checks()["truncated"]
        assert check["status"] == "warn"
        assert "byte" in check["detail"]
        assert len(rows["api_call"]) == 1
    rows, _ = read(trace, text[:cut].encode())
    assert f"byte {cut} " in rows.checks()["truncated"]["detail"]
    assert len(rows["gpu_op"]) == 1


def test_truncated_after_the_events_and_in_the_gzip_trailer(trace: Path) -> None:
    text = json.dumps({"traceEvents": [LAUNCH, kernel()], "traceName": "x"})
    rows, _ = read(trace, text[:-4])
    assert "metadata after the events" in rows.checks()["truncated"]["detail"]
    rows, _ = read(trace, gzip.compress(text.encode())[:-3])
    assert "JSON text is complete" in rows.checks()["truncated"]["detail"]
    assert len(rows["gpu_op"]) == 1


def test_bare_array_without_its_bracket(trace: Path) -> None:
    rows, _ = read(trace, json.dumps([LAUNCH, kernel()])[:-1] + ",\n")
    assert rows.checks()["truncated"]["status"] == "info"
    assert len(rows["gpu_op"]) == 1


def test_nan_control_characters_and_bad_utf8_are_repaired(trace: Path) -> None:
    text = json.dumps({"traceEvents": [LAUNCH, kernel("a|b"), kernel("nan \u00e9", bw=0.125)]})
    text = text.replace("0.125", "-Infinity").replace("a|b", "a\x01b").replace("\\u00e9", "@")
    rows, _ = read(trace, text.encode().replace(b"@", b"\xff"))
    assert rows.named("gpu_op") == ["a b", "nan \ufffd"]
    check = rows.checks()["json_repaired"]
    assert check["status"] == "warn"
    assert check["detail"].startswith("3 places")
    assert "unreadable_events" not in rows.checks()


def test_wrong_types_are_coerced_or_counted(trace: Path) -> None:
    rows, _ = read(
        trace,
        [
            LAUNCH,
            kernel(device="0", stream="7", correlation="12"),
            event("kernel", "no args", pid="0", tid="7", args=None),
            kernel(device="first"),
            kernel(grid={"x": 1}),
            kernel(correlation=10**40),
            kernel(ts="3.5"),
            kernel(ts=None),
            kernel(ts="soon"),
            kernel(dur=10**40),
            {**event("cpu_op", ""), "name": 5},
            event("cpu_op", "x", tid=[1]),
            event("cuda_runtime", "y", tid="main"),
        ],
    )
    assert [row["correlation_id"] for row in rows["gpu_op"]] == [12, None, 9]
    assert [row["start_ns"] for row in rows["gpu_op"]] == [1000, 1000, 3500]
    check = rows.checks()["unreadable_events"]
    assert check["detail"].startswith("9 of 13 events")


def test_huge_numbers_and_duplicate_keys(trace: Path) -> None:
    text = (
        '[{"ph":"X","cat":"kernel","name":"a","ts":1e400,"dur":1,"args":{"device":0}},'
        '{"ph":"M","ph":"X","cat":"kernel","name":"b","ts":1,"ts":2,"dur":1,"args":{"device":0}},'
        '{"ph":"X","cat":"kernel","name":"c","ts":1,"dur":1,"args":{"device":0,"x":1e999}}]'
    )
    rows, _ = read(trace, text)
    assert rows.named("gpu_op") == ["b", "c"]
    assert rows["gpu_op"][0]["start_ns"] == 2000
    assert "1 of 3" in rows.checks()["unreadable_events"]["detail"]


def test_negative_missing_and_overlong_durations_are_kept_and_counted(trace: Path) -> None:
    missing = kernel()
    del missing["dur"]
    rows, _ = read(trace, [LAUNCH, kernel(dur=-2), missing, kernel(ts=5, dur=7_200_000_000)])
    assert [row["end_ns"] for row in rows["gpu_op"]] == [-1000, None, 7_200_000_005_000]
    check = rows.checks()["negative_durations"]
    assert "1 events end before they start, 1 have no duration" in check["detail"]
    assert rows.checks()["overlong_durations"]["detail"].startswith("1 device ops")


def test_no_device_ops(trace: Path) -> None:
    rows, info = read(trace, {"deviceProperties": [], "traceEvents": [event("cpu_op", "x")]})
    assert rows.checks()["no_device_ops"]["forbids"] == "device budget"
    assert info.devices == []


def test_edges_absent(trace: Path) -> None:
    wait = event("cuda_runtime", "cudaStreamWaitEvent", args={"correlation": 8})
    rows, _ = read(trace, [LAUNCH, wait, kernel()])
    edges = rows.checks()["event_edges"]
    assert edges["status"] == "info"
    assert "lower bound" in edges["detail"]
    assert "1 of 1 stream-wait calls have no wait row" in edges["detail"]


@pytest.mark.parametrize(
    ("content", "slug"),
    [
        (b"", "empty-input"),
        (b"[]", "empty-input"),
        (b'{"traceEvents": []}', "empty-input"),
        (b"SQLite format 3\0", "not-a-kineto-trace"),
        (b"[1, 2, 3]", "empty-input"),
        (b'[{"a": 1}]', "not-a-kineto-trace"),
        (b'[["a"], ["b"]]', "not-a-kineto-trace"),
        (b'{"traceEvents": null}', "not-a-kineto-trace"),
        (b'{"traceEvents": [{"ph": "X"', "truncated-input"),
        (b"[" * 100_000, "truncated-input"),
    ],
)
def test_nothing_usable(trace: Path, content: bytes, slug: str) -> None:
    with pytest.raises(GapscopeError) as caught:
        read(trace, content)
    assert caught.value.slug == slug
    assert caught.value.hint


def test_missing_file(trace: Path) -> None:
    with pytest.raises(GapscopeError, match="No such file"):
        KinetoReader().read(trace, Rows())


def test_probe(tmp_path: Path) -> None:
    def probe(name: str, content: bytes) -> bool:
        path = tmp_path / name
        path.write_bytes(content)
        return KinetoReader.probe(path)

    text = json.dumps({"schemaVersion": 1, "traceEvents": [LAUNCH]}).encode()
    assert probe("a.json", text)
    assert probe("no_suffix", gzip.compress(text))
    assert probe("array.json", json.dumps([LAUNCH]).encode())
    assert probe("cut.json.gz", gzip.compress(text)[:-9])
    assert probe("empty.json", b"")
    assert not probe("empty.txt", b"")
    assert not probe("config.json", b'{"lr": 0.1}')
    assert not probe("a.sqlite", b"SQLite format 3\0")
    assert not probe("list.json", b"[1, 2]")
    assert not KinetoReader.probe(tmp_path)
    assert not KinetoReader.probe(tmp_path / "absent.json")
