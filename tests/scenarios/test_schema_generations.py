"""Exports as older versions of Nsight Systems wrote them: columns and tables that are not there.

What does not rest on them stays as it was to the nanosecond, what does is said to be missing.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gapscope.ingest.pipeline import ingest
from gapscope.run import open_run
from tests.ingest.nsys_export import Rows, global_pid, write_sqlite

from .nsys_steps import MS, Capture

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
NVTX = "NVTX_EVENTS"

# Of a step of 100 ms: 60 of compute, then a transfer of 30 that compute waits for, then 10.
UNIONS = {"step_ns": 100, "busy_ns": 100, "compute_ns": 70, "comm_ns": 30, "exposed_comm_ns": 30}
BLOCKING = {"blocking_ns": 30, "stalled_ns": 0}


def newest() -> Rows:
    """Five steps with every table and column that is dropped below."""
    capture = Capture(rank=0, world=1)
    place = {"deviceId": 0, "contextId": 1, "globalPid": global_pid(capture.pid)}
    capture.tables |= {EVENT: [], SYNC: []}
    for step in range(5):
        at = 100 * MS * step
        capture.range(f"step {step}", at, at + 100 * MS - 1)
        capture.launch(1, 7, at, at + (5000 if step == 0 else 0), at + 60 * MS)
        capture.launch(3, 20, at + 10_000, at + 60 * MS, at + 90 * MS)
        sync = 10 * step + 1
        event = {**place, "streamId": 20, "eventId": 5, "eventSyncId": sync}
        capture.tables[EVENT].append({**event, "correlationId": 1_000 + sync})
        capture.tables[SYNC].append(
            {
                **place,
                "start": at + 20_000,
                "end": at + 21_000,
                "streamId": 7,
                "syncType": 2,
                "eventId": 5,
                "eventSyncId": sync,
                "correlationId": 1_001 + sync,
            }
        )
        for offset, call in ((12_000, 1_000 + sync), (20_000, 1_001 + sync)):
            capture.tables[RUNTIME].append(
                {
                    "start": at + offset,
                    "end": at + offset + 500,
                    "globalTid": capture.tid,
                    "correlationId": call,
                    "nameId": 2,
                    "returnValue": 0,
                }
            )
        capture.launch(1, 7, at + 30_000, at + 90 * MS, at + 100 * MS)
    capture.overhead(499 * MS, 509 * MS)
    for row in capture.tables[KERNEL]:
        row |= {"graphNodeId": None, "gridX": 8, "blockX": 32}
    # Correlation ids count calls in host order.
    calls = sorted(capture.tables[RUNTIME], key=lambda row: row["start"])
    number = {row["correlationId"]: place for place, row in enumerate(calls, 1)}
    for table in (KERNEL, RUNTIME, SYNC, EVENT):
        for row in capture.tables[table]:
            row["correlationId"] = number[row["correlationId"]]
    return capture.tables


@dataclass
class Older:
    """What a generation lacks, which checks say so, and which numbers it still gives."""

    drops: dict[str, tuple[str, ...]]
    lost_tables: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    gives: tuple[dict[str, int], ...] = (UNIONS, BLOCKING)
    steps_from: str | None = "nvtx_step"


GENERATIONS = {
    "as written today": Older({}),
    "no id of the record that a wait is for": Older(
        {EVENT: ("eventSyncId",), SYNC: ("eventSyncId",)}, says=("event_edges",)
    ),
    "no records of events": Older({}, (EVENT,), ("event_edges",), (UNIONS,)),
    "no synchronization at all": Older({}, (EVENT, SYNC), ("event_edges",), (UNIONS,)),
    "synchronizations without a type": Older(
        {SYNC: ("syncType",)}, says=("event_edges",), gives=(UNIONS,)
    ),
    "no graph nodes, grids or process of a kernel": Older(
        {KERNEL: ("graphNodeId", "gridX", "blockX", "globalPid", "contextId")},
        gives=(UNIONS,),
    ),
    "short names only": Older({KERNEL: ("demangledName",)}, says=("kernel_names",)),
    "overhead without names": Older({"PROFILER_OVERHEAD": ("nameId",)}, says=("overhead_names",)),
    "no overhead": Older({}, ("PROFILER_OVERHEAD",)),
    "ranges without registered texts or domains": Older({NVTX: ("textId", "domainId")}),
    "no metadata": Older(
        {},
        (
            "META_DATA_CAPTURE",
            "META_DATA_EXPORT",
            "TARGET_INFO_SESSION_START_TIME",
            "TARGET_INFO_GPU",
            "TARGET_INFO_CUDA_DEVICE",
        ),
        ("missing_clock", "rank_number"),
    ),
    "no names": Older({}, ("StringIds",), ("missing_name",), ({"step_ns": 100, "busy_ns": 100},)),
    "no ranges": Older({}, (NVTX,), ("missing_range", "step_anchor"), (), None),
}


def _reduced(older: Older) -> Rows:
    tables = copy.deepcopy(newest())
    for table in older.lost_tables:
        del tables[table]
    for table, columns in older.drops.items():
        for row in tables[table]:
            for column in columns:
                del row[column]
    return tables


@pytest.mark.parametrize("name", GENERATIONS)
def test_an_older_export_gives_the_same_numbers_or_says_why_not(name: str, tmp_path: Path) -> None:
    older = GENERATIONS[name]
    source = write_sqlite(tmp_path / "export.sqlite", _reduced(older), typed=True)
    ingest([source], tmp_path / "run")
    with open_run(tmp_path / "run") as run:
        budget: list[dict[str, Any]] = run.sql(
            "FROM v1.step_budget WHERE projection = 'device' AND step_id IN (2, 3) ORDER BY step_id"
        ).to_dicts()
        quality = {row["check_name"]: row for row in run.quality().to_dicts()}
        sources = {row["source"] for row in run.sql("FROM v1.step").to_dicts()}
    for numbers in older.gives:
        assert [{key: row[key] for key in numbers} for row in budget] == [
            {key: value * MS for key, value in numbers.items()}
        ] * 2
    assert [check for check in older.says if quality[check]["status"] == "ok"] == []
    if not older.says:
        assert quality["event_edges"]["status"] == "ok"
    assert "audits" not in {key for key, row in quality.items() if row["status"] == "fail"}
    assert sources == ({older.steps_from} - {None})
