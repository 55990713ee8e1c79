"""Two ranks on two GPUs, recorded by the tracer and its instrument: a fault of known kind and size."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from gapscope.ingest.pipeline import ingest

ARCHIVE = Path(__file__).resolve().parents[1] / "data" / "two_gpus" / "skew.tar.xz"
SLEEP_NS = 20e6


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    directory = tmp_path_factory.mktemp("two_gpus")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(directory, filter="data")
    # Recording began inside step 14, and this tracer did not yet say so.
    done = ingest(
        [directory / "skew"], directory / "skew.run", workers=1, steps=r"step (1[5-9]|2[01])"
    )
    with duckdb.connect(str(done.out / "run.duckdb"), read_only=True) as con:
        yield con


def rows(run: duckdb.DuckDBPyConnection, query: str) -> list[tuple]:
    return run.execute(query).fetchall()


def test_every_op_has_its_call_and_none_comes_before_it(run):
    query = (
        "SELECT count(*), count(launch_call_id), count(*) FILTER (start_ns < launch_start_ns) "
        "FROM v1.device_op"
    )
    assert rows(run, query) == [(11_056, 11_056, 0)]


def test_every_collective_is_matched_by_its_own_number(run):
    assert rows(run, "SELECT count(*), count(*) FILTER (is_matched) FROM v1.collective_match") == [
        (416, 416)
    ]
    # Two groups of ranks would number them apart: FSDP2 uses the default group of two.
    assert rows(run, "SELECT DISTINCT group_size FROM v1.collective_op") == [(2,)]
    assert rows(run, "SELECT count(*) FROM v1.collective_op WHERE seq IS NULL") == [(0,)]


def test_clocks_are_those_of_one_host_with_a_residual(run):
    found = rows(run, "SELECT offset_ns, residual_ns < 10_000, method FROM v1.rank_clock")
    assert found == [(0, True, "clock exchange")] * 2


def test_waits_lead_to_their_producers(run):
    query = (
        "SELECT count(DISTINCT wait_id), count(DISTINCT wait_id) "
        "FILTER (producer_op_id IS NOT NULL) FROM v1.event_edge WHERE rank = 0"
    )
    ((waits, resolved),) = rows(run, query)
    assert resolved >= 0.995 * waits > 1_000


def test_the_sleep_is_late_launch_there_and_skew_here(run):
    query = (
        "SELECT rank, median(r1_ns), median(r3_ns), bool_and(compute_ns <= t_lb_ns), "
        "bool_and(t_lb_ns <= observed_ns) FROM v1.step_gap WHERE NOT is_boundary "
        "GROUP BY rank ORDER BY rank"
    )
    waiting, sleeping = rows(run, query)
    assert waiting[2] == pytest.approx(SLEEP_NS, rel=0.1)
    assert waiting[1] < 0.15 * SLEEP_NS
    assert sleeping[1] == pytest.approx(SLEEP_NS, rel=0.2)
    assert sleeping[2] < 0.01 * SLEEP_NS
    assert waiting[3:] == sleeping[3:] == (True, True)


def test_the_culprit_is_named_in_every_step(run):
    query = (
        "SELECT step_id, arg_max(culprit_rank, total_ns) FROM v1.gap_cause "
        "WHERE rank = 0 AND gap_class = 'R3' AND step_id > 0 GROUP BY step_id"
    )
    found = rows(run, query)
    assert len(found) == 6
    assert {rank for _, rank in found} == {1}


def test_the_rank_that_slept_is_the_straggler(run):
    """The six steps that count are just enough to tell: by chance it happens with 2 / 2^6."""
    query = "SELECT verdict, top_rank, top_count, laggard_steps, p_value FROM v1.part_straggler"
    assert rows(run, query) == [("repeated", 1, 6, 6, pytest.approx(2 / 2**6))]
    held = rows(run, "SELECT held_ns FROM v1.step_laggard")
    assert all(0.95 * SLEEP_NS < one < 1.15 * SLEEP_NS for (one,) in held), held
    # Alone they are on the link, so what they reach is that of NVLink.
    query = "SELECT bool_and(bus_gb_s BETWEEN 150 AND 300) FROM v1.collective_bandwidth"
    assert rows(run, query) == [(True,)]
