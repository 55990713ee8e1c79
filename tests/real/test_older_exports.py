"""A real export reduced to what older versions wrote gives the same budget, or says why not."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from gapscope.ingest.pipeline import ingest
from gapscope.run import open_run

SOURCE = "data/h200/nsys/n_base_rank0.sqlite.gz"
PREFIX = "CUPTI_ACTIVITY_KIND_"
UNIONS = ("step_ns", "busy_ns", "compute_ns", "comm_ns", "exposed_comm_ns", "copy_ns")
SPLIT = ("launch_starved_ns", "blocking_ns", "stalled_ns", "tail_ns")


class Seen:
    """Budgets of the steps that count, and the checks that are not `ok`."""

    def __init__(self, source: Path, out: Path) -> None:
        ingest([source], out, workers=1)
        with open_run(out) as run:
            self.budget: list[dict[str, Any]] = run.sql(
                "FROM v1.step_budget WHERE projection = 'device' AND step_id > 0 ORDER BY step_id"
            ).to_dicts()
            self.checks = {
                row["check_name"]: row["status"]
                for row in run.quality().to_dicts()
                if row["status"] != "ok"
            }
            self.sources = {row["source"] for row in run.sql("FROM v1.step").to_dicts()}

    def numbers(self, names: tuple[str, ...]) -> list[dict[str, int]]:
        return [{name: row[name] for name in names} for row in self.budget]


def _reduced(
    whole: Path,
    target: Path,
    tables: tuple[str, ...] = (),
    columns: tuple[tuple[str, str], ...] = (),
) -> Path:
    shutil.copy(whole, target)
    connection = sqlite3.connect(target)
    for table in tables:
        connection.execute(f'DROP TABLE "{table}"')
    for table, column in columns:
        connection.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
    connection.commit()
    connection.close()
    return target


@pytest.fixture(scope="module")
def whole(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("whole") / "whole.sqlite"
    with gzip.open(shared_data / SOURCE) as packed, target.open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    return target


@pytest.fixture(scope="module")
def truth(whole: Path) -> Seen:
    return Seen(whole, whole.parent / "run")


def test_waits_without_the_id_of_their_record(whole: Path, truth: Seen, tmp_path: Path) -> None:
    columns = ((f"{PREFIX}CUDA_EVENT", "eventSyncId"), (f"{PREFIX}SYNCHRONIZATION", "eventSyncId"))
    seen = Seen(_reduced(whole, tmp_path / "e.sqlite", columns=columns), tmp_path / "run")
    assert seen.numbers((*UNIONS, *SPLIT)) == truth.numbers((*UNIONS, *SPLIT))
    assert seen.checks["event_edges"] == "warn"


def test_short_names_and_nameless_overhead(whole: Path, truth: Seen, tmp_path: Path) -> None:
    columns = (
        *((f"{PREFIX}KERNEL", name) for name in ("demangledName", "mangledName", "graphNodeId")),
        ("PROFILER_OVERHEAD", "nameId"),
    )
    seen = Seen(_reduced(whole, tmp_path / "e.sqlite", columns=columns), tmp_path / "run")
    assert seen.numbers((*UNIONS, *SPLIT)) == truth.numbers((*UNIONS, *SPLIT))
    assert {"kernel_names", "overhead_names"} <= set(seen.checks)


def test_no_synchronization_records(whole: Path, truth: Seen, tmp_path: Path) -> None:
    tables = (f"{PREFIX}CUDA_EVENT", f"{PREFIX}SYNCHRONIZATION")
    seen = Seen(_reduced(whole, tmp_path / "e.sqlite", tables=tables), tmp_path / "run")
    assert seen.numbers((*UNIONS, "launch_starved_ns")) == truth.numbers(
        (*UNIONS, "launch_starved_ns")
    )
    # What was blocking counts as stalled: the one is a lower bound, and together they are the same.
    for less, row in zip(seen.budget, truth.budget, strict=True):
        assert less["blocking_ns"] < row["blocking_ns"]
        assert less["blocking_ns"] + less["stalled_ns"] == row["blocking_ns"] + row["stalled_ns"]
    assert seen.checks["event_edges"] == "info"


def test_steps_without_ranges_are_those_of_the_optimizer(
    whole: Path, truth: Seen, tmp_path: Path
) -> None:
    seen = Seen(_reduced(whole, tmp_path / "e.sqlite", tables=("NVTX_EVENTS",)), tmp_path / "run")
    assert (truth.sources, seen.sources) == ({"nvtx_step"}, {"optimizer_kernels"})
    # Packing is known by its range, and is taken for compute without it.
    same = tuple(name for name in UNIONS if name != "compute_ns")
    assert seen.numbers(same) == truth.numbers(same)
    assert "missing_range" in seen.checks
    assert "anchor_agreement" not in seen.checks
