"""What the model withholds, and that it says why: a capture edited so that a check must fail."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from gapscope.ingest.pipeline import ingest

CAPTURE = Path(__file__).parents[1] / "data" / "annotated" / "reshard_true.json.gz"


@pytest.fixture(scope="module")
def capture() -> dict[str, Any]:
    return json.loads(gzip.decompress(CAPTURE.read_bytes()))


def _analysed(events: list[dict[str, Any]], capture: dict[str, Any], where: Path) -> Path:
    file = where / "rank0.json"
    file.write_text(json.dumps(capture | {"traceEvents": events}))
    ingest([file], where / "run")
    return where / "run" / "run.duckdb"


def _rows(run: Path, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(run), read_only=True) as con:
        return con.execute(sql).fetchall()


def _named(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return sorted((e for e in events if e.get("name") == name), key=lambda e: e["ts"])


def _inside(label: dict[str, Any], name: str, duration: float, correlation: int) -> dict[str, Any]:
    """A runtime call on the label's thread, right behind the label."""
    return {
        "ph": "X", "cat": "cuda_runtime", "name": name, "pid": label["pid"], "tid": label["tid"],
        "ts": label["ts"] + label["dur"] + 1, "dur": duration,
        "args": {"correlation": correlation, "External id": 0},
    }  # fmt: skip


def _collective(
    label: dict[str, Any], gather: dict[str, Any], correlation: int, **changes: Any
) -> list[dict[str, Any]]:
    """A launch right behind the label and its kernel, on a stream that no other op uses."""
    launch = _inside(label, "cudaLaunchKernelExC", 5.0, correlation)
    args = gather["args"] | {"correlation": correlation, "stream": 99}
    return [launch, gather | {"ts": launch["ts"] + 20, "args": args} | changes]


def test_untouched_capture_has_bound_verdict_and_ladder(
    capture: dict[str, Any], tmp_path: Path
) -> None:
    run = _analysed(capture["traceEvents"], capture, tmp_path)
    assert _rows(run, "SELECT count(*) FROM v1.model_check WHERE withholds IS NOT NULL") == [(0,)]
    assert _rows(run, "SELECT step_id, is_provisional FROM v1.step_gap ORDER BY ALL") == [
        (0, False),
        (1, False),
    ]
    assert _rows(run, "SELECT DISTINCT step_id FROM v1.what_if ORDER BY ALL") == [(0,), (1,)]


def test_a_blocking_sync_inside_a_step_stops_its_ladder_and_nothing_else(
    capture: dict[str, Any], tmp_path: Path
) -> None:
    events = list(capture["traceEvents"])
    second = _named(events, "FSDP::pre_forward (blocks.1)")[1]
    events.append(_inside(second, "cudaStreamSynchronize", 200.0, 9_000_001))
    run = _analysed(events, capture, tmp_path)
    ((step, withholds, detail),) = _rows(
        run,
        "SELECT step_id, withholds, detail FROM v1.model_check WHERE check_name = 'blocking_sync'",
    )
    assert (step, withholds) == (1, "ladder")
    assert "cudaStreamSynchronize" in detail
    assert _rows(run, "SELECT DISTINCT step_id FROM v1.what_if") == [(0,)]
    assert _rows(run, "SELECT step_id, is_provisional FROM v1.step_gap ORDER BY ALL") == [
        (0, False),
        (1, False),
    ]


def test_a_sync_that_returns_at_once_blocks_nothing(
    capture: dict[str, Any], tmp_path: Path
) -> None:
    events = list(capture["traceEvents"])
    second = _named(events, "FSDP::pre_forward (blocks.1)")[1]
    events.append(_inside(second, "cudaStreamSynchronize", 3.0, 9_000_001))
    run = _analysed(events, capture, tmp_path)
    assert _rows(run, "FROM v1.model_check WHERE check_name = 'blocking_sync'") == []
    assert _rows(run, "SELECT DISTINCT step_id FROM v1.what_if ORDER BY ALL") == [(0,), (1,)]


def test_collectives_of_somebody_else_inside_forward_mean_that_the_pack_does_not_fit(
    capture: dict[str, Any], tmp_path: Path
) -> None:
    events = list(capture["traceEvents"])
    gather = next(e for e in events if e.get("cat") == "kernel" and "AllGather" in e["name"])
    for number, label in enumerate(_named(events, "FSDP::pre_forward (blocks.1)")):
        events += _collective(label, gather, 9_000_010 + number, dur=30.0)
    run = _analysed(events, capture, tmp_path)
    checks = _rows(
        run, "SELECT status, withholds, detail FROM v1.model_check WHERE check_name = 'rule_pack'"
    )
    assert checks == [
        (
            "warn",
            "bound",
            (
                "1 collectives a step inside forward or backward of units are not FSDP2's: the "
                "pack knows no rule for them"
            ),
        )
    ]
    assert _rows(run, "SELECT count(*) FROM v1.step_gap") == [(0,)]
    assert _rows(run, "SELECT count(*) > 0 FROM v1.step_budget") == [(True,)]


def test_a_loss_averaged_over_ranks_beside_the_units_withholds_nothing(
    capture: dict[str, Any], tmp_path: Path
) -> None:
    events = list(capture["traceEvents"])
    gather = next(e for e in events if e.get("cat") == "kernel" and "AllGather" in e["name"])
    for number, label in enumerate(_named(events, "FSDP::post_forward")):
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
        events += _collective(label, gather, 9_000_020 + number, name=name, dur=9.0)
    run = _analysed(events, capture, tmp_path)
    assert _rows(run, "SELECT DISTINCT node FROM v1.op_unit WHERE node_kind = 'COMM'") == [
        ("COMM(root)",)
    ]
    assert _rows(run, "SELECT count(*) FROM v1.model_check WHERE withholds = 'bound'") == [(0,)]
    assert _rows(run, "SELECT count(*) FROM v1.step_gap") == [(2,)]


def test_a_run_that_beats_a_rule_gets_no_bound(capture: dict[str, Any], tmp_path: Path) -> None:
    events = []
    for event in capture["traceEvents"]:
        if event.get("cat") == "kernel" and "AllGather" in event["name"]:
            # The copy-out then starts long before the gather that it reads has ended.
            event = event | {"dur": event["dur"] + 500}
        events.append(event)
    run = _analysed(events, capture, tmp_path)
    ((status, withholds, detail),) = _rows(
        run,
        "SELECT status, withholds, detail FROM v1.model_check WHERE check_name = 'rule_violations'",
    )
    assert (status, withholds) == ("fail", "bound")
    assert "F3" in detail
    assert _rows(run, "SELECT count(*) FROM v1.step_gap") == [(0,)]


def test_without_labels_there_is_no_pack_and_one_sentence_why(
    capture: dict[str, Any], tmp_path: Path
) -> None:
    events = [e for e in capture["traceEvents"] if not str(e.get("name")).startswith("FSDP::")]
    run = _analysed(events, capture, tmp_path)
    assert _rows(run, "SELECT check_name, status, withholds, detail FROM v1.model_check") == [
        (
            "rule_pack",
            "info",
            "bound",
            "no FSDP2 labels in the capture, and there is no rule pack for anything else",
        )
    ]
    assert _rows(run, "SELECT count(*) > 0 FROM v1.step_budget") == [(True,)]


def test_launches_that_were_not_captured_withhold_the_bound(
    capture: dict[str, Any], tmp_path: Path
) -> None:
    launches = [e for e in capture["traceEvents"] if e.get("name") == "cudaLaunchKernel"]
    gone = {id(e) for e in launches[::3]}
    events = [e for e in capture["traceEvents"] if id(e) not in gone]
    run = _analysed(events, capture, tmp_path)
    failed = _rows(
        run,
        "SELECT DISTINCT check_name FROM v1.model_check WHERE withholds = 'bound' ORDER BY ALL",
    )
    assert ("program_coverage",) in failed
    assert _rows(run, "SELECT count(*) FROM v1.step_gap") == [(0,)]
