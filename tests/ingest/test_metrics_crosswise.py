"""GPU metrics of one rank's device in the capture of another: samples belong to the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gapscope.ingest.pipeline import IngestResult, ingest
from gapscope.render import markdown, text
from gapscope.run import Run, open_run

from .nsys_export import Rows, call, full_export, global_pid, kernel, write_sqlite

US = 1_000
PERIOD = 50 * US
BEGIN = 100_000 * US
STEP = 10 * PERIOD
STEPS = 6
# Rank 1's session began this much later, so that its times of one instant are smaller by it.
LATER = 40_000 * US + 123
GEMM, NCCL = 100, 101
METRICS = ("GR Active [Throughput %]", "Tensor Active [Throughput %]", "GPC Clock Frequency [MHz]")
# Device 0 is rank 0's. In the last step it runs at half the clock: there it is the slower one.
TENSOR = {0: 90, 1: 60}
UUIDS = {0: "aaaa-0000", 1: "bbbb-1111", 2: "cccc-2222"}


def _ops(rank: int) -> list[tuple[int, int, int]]:
    """(name, start, end) in time since BEGIN: six periods of gemm, two of a collective, two idle."""
    made = []
    for step in range(STEPS):
        at = step * STEP
        # Ends of collectives are those of a real link: not the same to the nanosecond.
        late = 2 * US * rank
        made += [
            (GEMM, at, at + 6 * PERIOD),
            (NCCL, at + 6 * PERIOD, at + 7 * PERIOD),
            (NCCL, at + 7 * PERIOD, at + 8 * PERIOD + late),
        ]
    return made


def _samples(board: int, base: int, skew: int) -> list[dict[str, Any]]:
    """What is sampled of a device, from ten periods before its first op to ten after its last."""
    made = []
    for place in range(-10, STEPS * 10 + 10):
        is_inside = 0 <= place < STEPS * 10
        part = place % 10
        clock = 1_400_000_000 if place < (STEPS - 1) * 10 else 700_000_000
        # Outside of what was recorded the device runs something that nobody knows.
        busy = 100 if part < 8 or not is_inside else 0
        tensor = TENSOR.get(board, 0) if part < 6 and is_inside else 0
        made += [
            {
                "timestamp": BEGIN - base + skew + place * PERIOD,
                "typeId": 0x1000000 | board,
                "metricId": metric,
                "value": value,
            }
            for metric, value in enumerate((busy, tensor, clock))
        ]
    return made


def _export(
    rank: int, boards: tuple[int, ...], skew: int = 0, has_collectives: bool = True
) -> Rows:
    """The capture of a rank, whose process sees its own device alone, with samples of `boards`."""
    base = LATER * rank
    tables = full_export()
    for table in ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "OSRT_API", "CUPTI_ACTIVITY_KIND_MEMCPY"):
        del tables[table]
    tables["StringIds"] += [
        {"id": GEMM, "value": "sm90_gemm_a"},
        {"id": NCCL, "value": "ncclDevKernel_AllGather_RING_LL"},
    ]
    ops = [op for op in _ops(rank) if has_collectives or op[0] == GEMM]
    at = BEGIN - base
    tables |= {
        "META_DATA_CAPTURE": [
            {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": f'RANK="{rank}"'},
            {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": 'WORLD_SIZE="2"'},
        ],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 10**18 + base, "systemClockNs": 5_000}],
        "TARGET_INFO_GPU": [
            {"id": board, "name": "NVIDIA H200", "uuid": uuid} for board, uuid in UUIDS.items()
        ],
        "TARGET_INFO_CUDA_DEVICE": [{"gpuId": rank, "cudaId": 0, "pid": 7}],
        "CUPTI_ACTIVITY_KIND_KERNEL": [
            kernel(at + start, at + end, name=name, correlationId=place)
            for place, (name, start, end) in enumerate(ops, 1)
        ],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [
            call(at + start - 9 * US, at + start - 5 * US, correlationId=place)
            for place, (_, start, _) in enumerate(ops, 1)
        ],
        "NVTX_EVENTS": [
            {
                "globalTid": global_pid(7) | 9,
                "domainId": 0,
                "eventType": 59,
                "start": at + step * STEP - 20 * US,
                "end": at + (step + 1) * STEP - 21 * US,
                "text": f"step {step}",
                "textId": None,
            }
            for step in range(STEPS)
        ],
        "TARGET_INFO_GPU_METRICS": [
            {"typeId": 0x1000000 | board, "metricId": metric, "metricName": name}
            for board in boards
            for metric, name in enumerate(METRICS)
        ],
        "GPU_METRICS": [row for board in boards for row in _samples(board, base, skew)],
    }
    for table in ("CUDA_EVENT", "SYNCHRONIZATION", "MEMSET", "OVERHEAD"):
        tables.pop(f"CUPTI_ACTIVITY_KIND_{table}", None)
    return {name: rows for name, rows in tables.items() if rows}


def _ingest(tmp_path: Path, *exports: Rows) -> IngestResult:
    place = tmp_path / "captures"
    place.mkdir()
    for rank, tables in enumerate(exports):
        write_sqlite(place / f"rank{rank}.sqlite", tables)
    return ingest([place], tmp_path / "run", workers=1, steps=r"step \d+")


def _tensor(run: Run) -> list[tuple[Any, ...]]:
    return run.sql(
        "SELECT rank, source_path, full_count, mean_value, status FROM v1.operator_metric "
        "WHERE level = 'class' AND op_class = 'gemm' AND metric LIKE 'Tensor Active%' ORDER BY rank"
    ).rows()


def _quality(run: Run) -> dict[tuple[int, str], tuple[str, str]]:
    rows = run.sql(
        "SELECT rank, check_name, status, detail FROM v1.capture_quality "
        "WHERE check_name IN ('metric_source', 'metrics_unmet', 'gpu_metrics')"
    ).rows()
    return {(rank, check): (status, detail) for rank, check, status, detail in rows}


def test_samples_meet_the_ops_of_the_rank_that_ran_on_the_device(tmp_path: Path) -> None:
    done = _ingest(tmp_path, _export(0, (1,)), _export(1, (0,)))
    with open_run(done.out) as run:
        assert _tensor(run) == [
            (0, "rank1.sqlite", STEPS * 6, 90.0, "ok"),
            (1, "rank0.sqlite", STEPS * 6, 60.0, "ok"),
        ]
        source = run.sql(
            "SELECT rank, source_rank, device, offset_ns FROM v1.sample_source ORDER BY rank"
        ).rows()
        # Neither process sees the other's device.
        assert source == [(0, 1, None, LATER), (1, 0, None, -LATER)]
        fit = run.sql("SELECT metric, after_error, status FROM v1.metric_alignment").rows()
        assert [(metric, status) for metric, _, status in fit] == [(METRICS[0], "ok")] * 2
        # The collective that ends 2 us late on rank 1 is all that differs.
        assert all(error < 2 for _, error, _ in fit)
        quality = _quality(run)
        assert quality[0, "metric_source"][0] == "info"
        assert (
            "sampled in the capture of rank 1; the clocks of the two are known to"
            in (quality[0, "metric_source"][1])
        )
        assert not any(check == "metrics_unmet" for _, check in quality)
        document = run.report()
        (table,) = (t for t in document.section("budget").tables if t.id == "class-metrics")
    keys = [column.key for column in table.columns]
    rows = [dict(zip(keys, row, strict=True)) for row in table.rows]
    # The clock is shown in MHz, whatever the tool's name of it and its value say.
    clocks = {row["rank"]: row["gpc_clock"] for row in rows if row["op_class"] == "gemm"}
    assert clocks == {0: pytest.approx(1.2833e9, rel=1e-3), 1: pytest.approx(1.2833e9, rel=1e-3)}
    assert "| 1,283 MHz |" in markdown.render(document)
    lines = text.render(document).splitlines()
    assert any(line.split()[:2] == ["1", "gemm"] and "60.0 %" in line for line in lines)
    assert max(map(len, lines)) <= text.WIDTH


def test_one_capture_may_have_the_samples_of_all_devices(tmp_path: Path) -> None:
    done = _ingest(tmp_path, _export(0, (0, 1, 2)), _export(1, ()))
    with open_run(done.out) as run:
        assert _tensor(run) == [
            (0, "rank0.sqlite", STEPS * 6, 90.0, "ok"),
            (1, "rank0.sqlite", STEPS * 6, 60.0, "ok"),
        ]
        quality = _quality(run)
        assert quality[0, "metrics_unmet"] == (
            "info",
            "samples of cccc-2222 (no captured rank ran on it) meet no device op",
        )
        # That rank 1's own capture has none is no loss.
        assert (1, "gpu_metrics") not in quality
        assert (0, "metric_source") not in quality


@pytest.mark.parametrize(
    ("skew", "has_collectives", "said"),
    [
        (STEP // 2, True, "points off the busy share of this rank: they do not fit each other"),
        (0, False, "it is not known to within a sample how their clocks stand"),
    ],
    ids=["misfit", "unknown-clock"],
)
def test_no_numbers_where_samples_and_ops_may_not_be_of_one_time(
    tmp_path: Path, skew: int, has_collectives: bool, said: str
) -> None:
    done = _ingest(
        tmp_path,
        _export(0, (0, 1), skew, has_collectives),
        _export(1, (), 0, has_collectives),
    )
    with open_run(done.out) as run:
        # Those in the rank's own capture need no clock.
        assert [row[0] for row in _tensor(run)] == [0]
        status, detail = _quality(run)[1, "metric_source"]
        assert (status, said in detail) == ("warn", True), detail
        assert run.sql("SELECT count(*) AS n FROM v1.step_gpu_clock WHERE rank = 1").item() == 0


def test_samples_that_meet_no_op_are_said(tmp_path: Path) -> None:
    done = _ingest(tmp_path, _export(0, (2,)), _export(1, ()))
    with open_run(done.out) as run:
        assert _tensor(run) == []
        assert _quality(run)[0, "metrics_unmet"][0] == "warn"
    assert any(row["check_name"] == "metrics_unmet" for row in done.quality)


def test_the_clock_is_that_of_compute_in_each_step(tmp_path: Path) -> None:
    done = _ingest(tmp_path, _export(0, (1,)), _export(1, (0,)))
    with open_run(done.out) as run:
        rows = run.sql(
            "SELECT rank, step_id, sample_count, covered_share, mean_hz, compute_ns, "
            "compute_cycles FROM v1.step_gpu_clock ORDER BY rank, step_id"
        ).rows()
    assert len(rows) == 2 * STEPS
    for _, step, count, covered, mean, compute, cycles in rows:
        hertz = 1.4e9 if step < STEPS - 1 else 0.7e9
        assert (count, covered, mean) == (6, 1.0, hertz)
        assert cycles == pytest.approx(compute * hertz / 1e9)


def test_processes_of_one_capture_that_number_devices_alike_are_told_apart(tmp_path: Path) -> None:
    """Each of two processes sees its own device as number 0; a third device is nobody's."""
    tables = _export(0, (0, 1, 2))
    tables["META_DATA_CAPTURE"] = []
    tables["TARGET_INFO_CUDA_DEVICE"] = [
        {"gpuId": 1, "cudaId": 0, "pid": 7},
        {"gpuId": 0, "cudaId": 0, "pid": 8},
    ]
    ops = [(name, start, end) for name, start, end in _ops(0) if name == GEMM]
    tables["CUPTI_ACTIVITY_KIND_KERNEL"] = [
        kernel(BEGIN + start, BEGIN + end, name=name, pid=pid, correlationId=place)
        for pid in (7, 8)
        for place, (name, start, end) in enumerate(ops, 1)
    ]
    tables["CUPTI_ACTIVITY_KIND_RUNTIME"] = [
        call(BEGIN + start - 9, BEGIN + start - 5, pid=pid, correlationId=place)
        for pid in (7, 8)
        for place, (_, start, _) in enumerate(ops, 1)
    ]
    del tables["NVTX_EVENTS"]
    write_sqlite(tmp_path / "both.sqlite", {name: rows for name, rows in tables.items() if rows})
    done = ingest([tmp_path], tmp_path / "run", workers=1)
    with open_run(done.out) as run:
        ran = run.sql(
            "SELECT r.device_uuid, c.mean_value FROM v1.class_metric AS c INNER JOIN v1.rank AS r "
            "ON c.rank = r.rank WHERE c.level = 'class' AND c.metric LIKE 'Tensor%'"
        ).rows()
        assert sorted(ran) == [("aaaa-0000", 90.0), ("bbbb-1111", 60.0)]
        kept = run.sql("SELECT DISTINCT rank, device_uuid FROM v1.metric_sample").rows()
        # What is of no rank here stays with the first one: another capture may have its rank.
        assert sorted(uuid for _, uuid in kept) == sorted(UUIDS.values())
        assert (0, UUIDS[2]) in kept
