"""A capture of hardware metrics beside the timing captures: joined by operator name, truth known."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gapscope.errors import GapscopeError
from gapscope.ingest.pipeline import ingest
from gapscope.render import markdown, text
from gapscope.run import open_run

from .nsys_export import Rows, call, full_export, global_pid, kernel, write_sqlite

if TYPE_CHECKING:
    from gapscope.report.document import Document

US = 1_000
PERIOD = 50 * US
GEMM, NORM, NCCL = "sm90_gemm_a", "layer_norm_b", "ncclDevKernel_AllGather_RING_LL"
METRICS = (
    "GR Active [Throughput %]",
    "SM Issue [Throughput %]",
    "Tensor Active [Throughput %]",
    "NVLink RX Responses User Data [Throughput %]",
)
# What runs in each sample, [start, end) in units of a quarter of its period, and what is sampled then.
TIMELINE: tuple[tuple[tuple[tuple[str, int, int], ...], tuple[int, int, int, int]], ...] = (
    (((GEMM, 0, 4),), (100, 20, 90, 0)),
    (((GEMM, 0, 4),), (100, 30, 80, 0)),
    (((GEMM, 0, 2), (NORM, 2, 4)), (100, 50, 45, 0)),
    (((NORM, 0, 4),), (100, 60, 2, 0)),
    (((NORM, 0, 4), (NCCL, 1, 3)), (100, 65, 2, 40)),
    (((NORM, 0, 1), (GEMM, 2, 4)), (75, 33, 33, 0)),
    (((NCCL, 0, 1),), (25, 1, 0, 30)),
    ((), (0, 0, 0, 0)),
)


def _export(names: list[str], **tables: Any) -> Rows:
    made = full_export()
    strings = [{"id": 100 + place, "value": name} for place, name in enumerate(names)]
    made["StringIds"] += strings
    for table in ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "OSRT_API", "TARGET_INFO_GPU_METRICS"):
        del made[table]
    for table in ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET", "GPU_METRICS"):
        del made[table]
    made["CUPTI_ACTIVITY_KIND_CUDA_EVENT"] = []
    made["CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"] = []
    return {name: rows for name, rows in {**made, **tables}.items() if rows}


def _launched(ops: list[tuple[int, int, int, int]]) -> Rows:
    """Kernels (name, stream, start, end), each with its call."""
    return {
        "CUPTI_ACTIVITY_KIND_KERNEL": [
            kernel(start, end, name=name, streamId=stream, correlationId=place)
            for place, (name, stream, start, end) in enumerate(ops, 1)
        ],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [
            call(start - 9, start - 5, correlationId=place)
            for place, (_, _, start, _) in enumerate(ops, 1)
        ],
    }


def metrics_export(stamp: int = 0) -> Rows:
    """A capture of metrics alone; `stamp` is added to the time of each sample."""
    names = {GEMM: 100, NORM: 101, NCCL: 102}
    ops = []
    samples = []
    for place, (ran, values) in enumerate(TIMELINE):
        at = 100 * US + place * PERIOD
        ops += [
            (names[name], 20 if name == NCCL else 7, at + a * PERIOD // 4, at + b * PERIOD // 4)
            for name, a, b in ran
        ]
        samples += [
            {"timestamp": at + stamp, "typeId": 0x1000002, "metricId": metric, "value": value}
            for metric, value in enumerate(values)
        ]
    labels = [
        {"typeId": 0x1000002, "metricId": metric, "metricName": name}
        for metric, name in enumerate(METRICS)
    ]
    # One stamp more ends the last interval, and one less would begin none.
    for edge in (-1, len(TIMELINE)):
        at = 100 * US + edge * PERIOD + stamp
        samples += [
            {"timestamp": at, "typeId": 0x1000002, "metricId": metric, "value": 0}
            for metric in range(len(METRICS))
        ]
    samples.sort(key=lambda row: (row["metricId"], row["timestamp"]))
    return _export(
        list(names), **_launched(ops), TARGET_INFO_GPU_METRICS=labels, GPU_METRICS=samples
    )


def timing_export() -> Rows:
    """The timing capture: 300 us of the same gemm under other launches, and a kernel of its own."""
    ops = [(100, 7, 1000 * US, 1300 * US), (101, 7, 1300 * US, 1400 * US)]
    return _export([GEMM, "row_softmax_c"], **_launched(ops))


def _run(tmp_path: Path, stamp: int = 0) -> Path:
    place = tmp_path / "captures"
    place.mkdir()
    write_sqlite(place / "timing.sqlite", timing_export())
    write_sqlite(place / "metrics.sqlite", metrics_export(stamp))
    # It lies among the timing captures and claims their rank, yet it is none.
    metrics = [place / "metrics.sqlite"]
    return ingest([place], tmp_path / "run", metrics=metrics, workers=1).out


def _of(run: Path, metric: str, level: str = "class") -> dict[str, tuple[Any, ...]]:
    column = "op_class" if level == "class" else "name"
    with open_run(run) as opened:
        rows = opened.sql(
            f"SELECT {column} AS what, sample_count, clear_count, full_count, mean_value, status "
            f"FROM v1.operator_metric WHERE level = '{level}' AND metric LIKE '{metric}%'"
        ).to_dicts()
    return {row.pop("what"): tuple(row.values()) for row in rows}


@pytest.mark.parametrize("stamp", [0, PERIOD], ids=["begin-stamped", "end-stamped"])
def test_only_samples_of_exactly_one_class_count(tmp_path: Path, stamp: int) -> None:
    run = _run(tmp_path, stamp)
    # gemm runs in samples 0, 1, 2 and 5, alone in 0 and 1 and through both; norm in 2 to 5, alone in 3.
    assert _of(run, "Tensor Active") == {
        "gemm": (4, 2, 2, 85.0, "ok"),
        "norm": (4, 1, 1, 2.0, "contaminated"),
        "nccl": (2, 1, 0, None, "unsampled"),
    }
    assert _of(run, "SM Issue")["gemm"] == (4, 2, 2, 25.0, "ok")
    assert _of(run, "SM Issue", "op")[GEMM] == (4, 2, 2, 25.0, "ok")
    with open_run(run) as opened:
        (note,) = opened.sql("FROM v1.ingest_note WHERE check_name LIKE 'metrics_%'").to_dicts()
    assert note["forbids"] is None
    assert ("that a stamp begins" in note["detail"]) == (stamp == 0)


def test_metrics_join_timing_by_name_and_add_no_op_to_it(tmp_path: Path) -> None:
    run = _run(tmp_path)
    with open_run(run) as opened:
        assert opened.sql("SELECT count(*) AS n FROM v1.gpu_op").item() == 2
        assert opened.sql("SELECT count(*) AS n FROM v1.metric_sample").item() == 0
        assert opened.ranks()["rank"].to_list() == [3]
        shares = opened.sql(
            "SELECT DISTINCT op_class, timing_share FROM v1.operator_metric WHERE level = 'class'"
        )
    assert dict(shares.iter_rows()) == {"gemm": 0.75, "norm": None, "nccl": None}


def test_a_capture_of_other_kernels_is_said_and_its_classes_are_unknown(tmp_path: Path) -> None:
    metrics = write_sqlite(tmp_path / "metrics.sqlite", metrics_export())
    ops = [(100, 7, 1000 * US, 1300 * US), (101, 7, 1300 * US, 1400 * US)]
    other = _export(["sm90_gemm_other", "row_softmax_c"], **_launched(ops))
    timing = write_sqlite(tmp_path / "timing.sqlite", other)
    run = ingest([timing], tmp_path / "run", metrics=[metrics], workers=1).out
    assert _of(run, "Tensor Active")["gemm"] == (4, 2, 2, None, "uncovered")
    with open_run(run) as opened:
        (note,) = opened.sql(
            "FROM v1.capture_quality WHERE check_name LIKE 'metrics_coverage%'"
        ).to_dicts()
        said = " ".join(_statements(opened.report()))
    assert (note["status"], note["detail"]) == (
        "warn",
        "0.0 % of the compute volume is of kernels that it sampled: is it of another workload?",
    )
    assert "Uncovered (no kernel that the run has of it was sampled" in said


def test_report_says_n_exclusivity_and_what_is_unknown(tmp_path: Path) -> None:
    with open_run(_run(tmp_path)) as run:
        document = run.report()
    said = " ".join(_statements(document))
    assert "joined by operator class and name, never by launch" in said
    assert "Contaminated (in most of its samples another class ran too): `compute/norm`" in said
    assert "so nothing is known): `communication/nccl`" in said
    assert (
        "In no capture of metrics, so unknown: `compute/reduction` (25.0 % of the volume)" in said
    )
    assert "Not sampled, so unknown: DRAM read, DRAM write, NVLink TX, PCIe RX, PCIe TX" in said
    (table,) = (t for t in document.section("budget").tables if t.id == "class-metrics")
    keys = [column.key for column in table.columns]
    rows = [dict(zip(keys, row, strict=True)) for row in table.rows]
    gemm = next(row for row in rows if row["op_class"] == "gemm")
    assert (gemm["full_count"], gemm["exclusivity"], gemm["tensor_active"]) == (2, 0.5, 0.85)
    assert gemm["dram_read"] is None
    lines = text.render(document).splitlines()
    place = next(place for place, line in enumerate(lines) if line.startswith("  GPU  class"))
    assert lines[place + 1].split() == [
        "0", "gemm", "75.0", "%", "100.0", "%", "2", "25.0", "%", "85.0", "%", "ok",
    ]  # fmt: skip
    assert max(map(len, lines)) <= text.WIDTH
    assert "| 75.0 % | 100.0 % | 2 | `ok` | 25.0 % | 85.0 % |" in markdown.render(document)
    assert gemm["covered_share"] == 1


def _statements(document: Document) -> list[str]:
    return [statement.text for statement in document.section("budget").statements]


def test_a_capture_without_samples_is_refused(tmp_path: Path) -> None:
    file = write_sqlite(tmp_path / "timing.sqlite", timing_export())
    other = write_sqlite(tmp_path / "none.sqlite", timing_export())
    with pytest.raises(GapscopeError) as failure:
        ingest([file], tmp_path / "run", metrics=[other], workers=1)
    assert failure.value.slug == "no-metrics"
    assert "--gpu-metrics-devices" in failure.value.hint
    assert not (tmp_path / "run").exists()


def test_a_capture_of_metrics_among_ranks_is_pointed_to_its_option(tmp_path: Path) -> None:
    write_sqlite(tmp_path / "timing.sqlite", timing_export())
    write_sqlite(tmp_path / "metrics.sqlite", metrics_export())
    with pytest.raises(GapscopeError) as failure:
        ingest([tmp_path], tmp_path / "run", workers=1)
    assert failure.value.slug == "duplicate-rank"
    assert "--metrics FILE" in failure.value.hint


def test_samples_of_a_shared_device_see_both_processes(tmp_path: Path) -> None:
    """What another process runs on the device is another class beside, also if its rank is not this."""
    tables = metrics_export()
    at = 100 * US
    other = kernel(at, at + PERIOD, name=101, pid=8, correlationId=900)
    tables["CUPTI_ACTIVITY_KIND_KERNEL"] = [*tables["CUPTI_ACTIVITY_KIND_KERNEL"], other]
    tables["CUPTI_ACTIVITY_KIND_RUNTIME"] = [
        *tables["CUPTI_ACTIVITY_KIND_RUNTIME"],
        call(at - 9, at - 5, pid=8, correlationId=900, globalTid=global_pid(8) | 9),
    ]
    file = write_sqlite(tmp_path / "metrics.sqlite", tables)
    timing = write_sqlite(tmp_path / "timing.sqlite", timing_export())
    run = ingest([timing], tmp_path / "run", metrics=[file], workers=1).out
    assert _of(run, "Tensor Active")["gemm"] == (4, 1, 1, 80.0, "contaminated")


def test_real_capture(shared_data: Path, tmp_path: Path) -> None:
    """H200, 20 kHz: counted once more from the export with plain Python."""
    data = shared_data / "data" / "h200" / "nsys"
    for name in ("nq8_base_rank0.sqlite.gz", "metrics.sqlite.gz"):
        shutil.copy(data / name, tmp_path)
    run = ingest(
        [tmp_path / "nq8_base_rank0.sqlite.gz"],
        tmp_path / "run",
        metrics=[tmp_path / "metrics.sqlite.gz"],
        workers=1,
    ).out
    tensor, issue = _of(run, "Tensor Active"), _of(run, "SM Issue")
    assert tensor["gemm"][:3] == issue["gemm"][:3] == (60, 41, 26)
    assert tensor["gemm"][3] == pytest.approx(88.346, abs=1e-3)
    assert issue["gemm"][3] == pytest.approx(12.269, abs=1e-3)
    assert tensor["attention"] == (12, 9, 4, 44.5, "ok")
    assert tensor["optimizer"][2] == 7
    assert tensor["optimizer"][3] < 1
    assert tensor["elementwise"][4] == "contaminated"
    assert tensor["memcpy"][3] is None
