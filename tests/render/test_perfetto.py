"""The Perfetto export: nothing lost, nothing overlapping, every nanosecond exact."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from gapscope.errors import GapscopeError
from gapscope.ingest.pipeline import ingest
from gapscope.render import perfetto
from gapscope.render.redact import Redactor, parse
from gapscope.run import open_run

PRIVATE = "train /home/alice/project-x/train.py on box-17.corp"


def _load(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    return json.loads(data, parse_float=Fraction)


def _slices(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def _threads(trace: dict[str, Any]) -> dict[tuple[int, int], str]:
    return {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in trace["traceEvents"]
        if event["name"] == "thread_name"
    }


@pytest.fixture(scope="module")
def exported(tiny_run, tmp_path_factory):
    path = tmp_path_factory.mktemp("perfetto") / "run.json.gz"
    with open_run(tiny_run) as run:
        counts = perfetto.export(run, path)
    return _load(path), counts, path


@pytest.fixture
def overlapping(tmp_path):
    """One rank: three kernels of one stream that overlap, one of them inside another."""

    def kernel(name: str, start: float, dur: float, correlation: int) -> list[dict[str, Any]]:
        arguments = {"device": 0, "context": 1, "stream": 7, "correlation": correlation}
        call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1}
        call |= {"ts": correlation, "dur": 0.5, "args": {"correlation": correlation, "cbid": 211}}
        op = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": start, "dur": dur}
        return [call, op | {"args": arguments}]

    marker = {"ph": "X", "cat": "user_annotation", "name": PRIVATE, "pid": 1, "tid": 1}
    marker |= {"ts": 0, "dur": 50, "args": {}}
    events = [
        marker,
        *kernel("gemm<a, b>", 100.001, 50, 1),
        *kernel('quote"\\', 120, 10, 2),
        *kernel("gemm<a, b>", 140, 30.007, 3),
        *kernel("gemm<a, b>", 170.007, 1, 4),
    ]
    content = {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": 5, "world_size": 8},
        "traceEvents": events,
    }
    source = tmp_path / "in" / "five.json"
    source.parent.mkdir()
    source.write_text(json.dumps(content), encoding="utf-8")
    return ingest([source], tmp_path / "gapscope.run", workers=1).out


def test_every_row_is_a_slice(tiny_run, exported):
    trace, counts, _ = exported
    by_category = Counter(
        {
            "step": "steps",
            "gap": "gaps",
            "class": "classes",
            "node": "nodes",
            "api": "calls",
        }.get(event["cat"], "ops")
        for event in _slices(trace)
    )
    with open_run(tiny_run) as run:
        query = (
            "SELECT (SELECT count(*) FROM v1.op) AS ops, (SELECT count(*) FROM v1.api_call) AS calls, "
            "(SELECT count(*) FROM v1.step_window WHERE projection <> 'capture') AS steps, "
            "(SELECT count(*) FROM v1.absent_piece WHERE projection = 'device') AS gaps, "
            "(SELECT count(*) FROM v1.gap_piece) AS classes, "
            "(SELECT count(*) FROM v1.program_node) AS nodes"
        )
        expected = run.sql(query).to_dicts()[0]
    assert dict(by_category) == expected == counts


@pytest.mark.parametrize("category", ["gap", "class"])
def test_gap_slices_sum_to_compute_absent_time(tiny_run, exported, category):
    sums: dict[tuple[int, int], Fraction] = defaultdict(Fraction)
    for event in _slices(exported[0]):
        if event["cat"] == category:
            sums[event["pid"], event["args"]["step_id"]] += event["dur"] * 1000
    with open_run(tiny_run) as run:
        budget = run.step_budget("device").rows(named=True)
    assert sums == {(row["rank"], row["step_id"]): row["compute_absent_ns"] for row in budget}


def test_no_two_slices_of_a_thread_overlap_except_nested_calls(exported):
    trace, _, _ = exported
    threads = _threads(trace)
    by_thread = defaultdict(list)
    for event in _slices(trace):
        by_thread[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert set(by_thread) == set(threads)
    for thread, slices in by_thread.items():
        open_ends: list[Fraction] = []
        for start, end in sorted(slices, key=lambda one: (one[0], -one[1])):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            if open_ends:
                assert "(API)" in threads[thread], threads[thread]
                assert end <= open_ends[-1]
            open_ends.append(end)


def test_times_start_at_zero_and_are_exact_nanoseconds(exported):
    times = [event[key] for event in _slices(exported[0]) for key in ("ts", "dur")]
    assert min(times) >= 0
    assert min(event["ts"] for event in _slices(exported[0])) == 0
    assert all((Fraction(time) * 1000).denominator == 1 for time in times)


def test_same_run_gives_the_same_bytes(tiny_run, exported, tmp_path):
    again = tmp_path / "other-name.json.gz"
    with open_run(tiny_run) as run:
        perfetto.export(run, again)
    assert again.read_bytes() == exported[2].read_bytes()


def test_batches_lose_and_repeat_nothing(tiny_run, exported, tmp_path, monkeypatch):
    monkeypatch.setattr(perfetto, "_BATCH_ROWS", 100)
    path = tmp_path / "run.json.gz"
    with open_run(tiny_run) as run:
        assert perfetto.export(run, path) == exported[1]
    assert path.read_bytes() == exported[2].read_bytes()


def test_overlapping_ops_of_a_stream_go_to_further_tracks(overlapping, tmp_path):
    path = tmp_path / "out.json"
    with open_run(overlapping) as run:
        counts = perfetto.export(run, path)
    trace = _load(path)
    assert counts["ops"] == 4
    threads = _threads(trace)
    placed = Counter(
        threads[event["pid"], event["tid"]]
        for event in _slices(trace)
        if "stream" in threads[event["pid"], event["tid"]]
    )
    assert placed == {"stream 7": 2, "stream 7 (overlap 1)": 2}
    names = {event["name"] for event in _slices(trace)}
    assert {'quote"\\', "gemm<a, b>"} <= names
    assert {event["pid"] for event in trace["traceEvents"]} == {5}


def test_redaction_reaches_every_text(overlapping, tmp_path):
    plain, redacted = tmp_path / "plain.json", tmp_path / "redacted.json"
    with open_run(overlapping) as run:
        perfetto.export(run, plain)
        perfetto.export(run, redacted, ["paths"])
    assert "/home/alice" in plain.read_text(encoding="utf-8")
    text = redacted.read_text(encoding="utf-8")
    assert "alice" not in text
    assert "project-x" not in text
    assert "train <path> on box-17.corp" in text
    assert "five.json" not in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/alice/x.py", "<path>"),
        ("load(/data/set/a.bin)", "load(<path>)"),
        ("~/runs/today/log", "<path>"),
        (r"C:\Users\alice\x", "<path>"),
        ("FSDP::all_gather (blocks.0)", "FSDP::all_gather (blocks.0)"),
        ("samples/s", "samples/s"),
        ("at::native::f<1/2>", "at::native::f<1/2>"),
        ("on node12 and node1", "on host-1 and host-0"),
    ],
)
def test_redactor_says_the_same_in_python_and_in_sql(text, expected):
    import duckdb

    redactor = Redactor(["paths", "hosts"], ["node1", "node12", None])
    assert redactor.text(text) == expected
    with duckdb.connect() as con:
        expression = redactor.sql("range", "name")
        row = con.execute(f"SELECT {expression} FROM (SELECT ? AS name)", [text]).fetchone()
    assert row == (expected,)


def test_unknown_kind_of_redaction_is_an_error():
    with pytest.raises(GapscopeError, match="names"):
        parse("paths,names")
