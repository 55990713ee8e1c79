"""Two ranks on two GPUs, recorded by the tracer and its instrument: a fault of known kind and size."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from gapscope.ingest.pipeline import ingest
from gapscope.report import build
from gapscope.report.document import Document
from gapscope.run import open_run

ARCHIVES = Path(__file__).resolve().parents[1] / "data" / "two_gpus"
SLEEP_NS = 20e6


def ingested(directory: Path, name: str) -> Path:
    with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
        archive.extractall(directory, filter="data")
    return ingest([directory / name], directory / f"{name}.run", workers=1).out / "run.duckdb"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    path = ingested(tmp_path_factory.mktemp("two_gpus"), "skew")
    with duckdb.connect(str(path), read_only=True) as con:
        yield con


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    path = ingested(tmp_path_factory.mktemp("two_gpus"), "queue")
    with duckdb.connect(str(path), read_only=True) as con:
        yield con


@pytest.fixture(scope="module")
def report(run: duckdb.DuckDBPyConnection) -> Document:
    ((path,),) = run.execute(
        "SELECT path FROM duckdb_databases() WHERE path IS NOT NULL"
    ).fetchall()
    with open_run(Path(path)) as opened:
        return build.build(opened)


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
    assert len(found) == 7
    assert {rank for _, rank in found} == {1}


def test_the_rank_that_slept_is_the_straggler(run):
    """All seven steps that count: by chance it happens with 2 / 2^7."""
    query = "SELECT verdict, top_rank, top_count, laggard_steps, p_value FROM v1.part_straggler"
    assert rows(run, query) == [("repeated", 1, 7, 7, pytest.approx(2 / 2**7))]
    held = rows(run, "SELECT held_ns FROM v1.step_laggard")
    assert all(0.95 * SLEEP_NS < one < 1.15 * SLEEP_NS for (one,) in held), held
    # Alone they are on the link, so what they reach is that of NVLink.
    query = "SELECT bool_and(bus_gb_s BETWEEN 150 AND 300) FROM v1.collective_bandwidth"
    assert rows(run, query) == [(True,)]


def test_the_report_counts_the_same_steps_for_all_of_a_laggard(run, report):
    """Step 0, a boundary, is in no column."""
    tables = {table.id: table for section in report.sections for table in section.tables}
    keys = [column.key for column in tables["laggards"].columns]
    found = {row[0]: dict(zip(keys, row, strict=True)) for row in tables["laggards"].rows}
    query = (
        "SELECT rank, count(*), sum(matched_count)::BIGINT, sum(last_count)::BIGINT, "
        "avg(late_ns)::BIGINT, avg(held_ns)::BIGINT FROM v1.rank_lateness WHERE step_id > 0 "
        "GROUP BY rank"
    )
    for rank, *counted in rows(run, query):
        names = ("step_count", "matched_count", "last_count", "late_ns", "held_ns")
        assert [found[rank][name] for name in names] == counted
        assert counted[0] == 7
    ((skew,),) = rows(run, "SELECT avg(r3_ns) FROM v1.step_gap WHERE rank = 0 AND step_id > 0")
    assert found[1]["r3_ns"] == pytest.approx(skew, rel=0.01)
    assert found[1]["r3_ns"] == pytest.approx(SLEEP_NS, rel=0.2)


def test_the_report_names_the_last_rank_by_one_rule(run, report):
    """Three residuals, in words as in the table and in `gapscope ranks`; here of the whole capture."""
    counted = dict(rows(run, "SELECT rank, sum(last_count) FROM v1.rank_lateness GROUP BY rank"))
    most = max(counted, key=counted.__getitem__)
    (said,) = [
        statement.text
        for statement in report.section("ranks").statements
        if "have a last rank" in statement.text
    ]
    assert said.startswith(
        f"Of 208 matched collectives of the whole capture, {sum(counted.values())} have a last "
        "rank, more than three clock residuals ("
    )
    assert f": rank {most} most often, in {counted[most]};" in said
    arrivals = next(t for t in report.section("ranks").tables if t.id == "arrivals")
    place = [column.key for column in arrivals.columns].index("clear_last_count")
    assert sum(row[place] for row in arrivals.rows) == sum(counted.values())


@pytest.mark.parametrize("name", ["run", "queue"])
def test_the_step_in_which_recording_begins_is_no_step_to_judge_by(name, request):
    """The device still runs what was launched before: 110 to 140 ms that would read as late launch."""
    found = rows(
        request.getfixturevalue(name),
        "SELECT step_id, list(DISTINCT boundary_reason) FROM v1.step WHERE is_boundary GROUP BY step_id",
    )
    assert [step for step, _ in found] == [0]
    assert all("the host waits for what was before the capture" in reason for reason in found[0][1])


def test_steps_on_other_streams_are_explained_beside_the_rest(queue):
    """Steps 15 and 17 (1 and 3 here) have their collectives on the compute stream, step 16 has not."""
    query = (
        "SELECT step_id, min(r2_ns) / 1e6, max(r2_ns) / 1e6 FROM v1.step_gap WHERE NOT is_boundary"
    )
    found = rows(queue, query + " GROUP BY step_id ORDER BY step_id")
    assert [(step, 20 < least <= most < 30) for step, least, most in found] == [
        (1, True),
        (2, False),
        (3, True),
    ]
    assert found[1][1:] == (0, 0)
    wrong = "SELECT count(*) FROM v1.model_check WHERE status IN ('warn', 'fail')"
    assert rows(queue, wrong) == [(0,)]


def test_what_never_overlaps_is_slowed_as_other_steps_tell(queue):
    """Without R2 compute would run beside communication, as it does in step 2 only."""
    query = (
        "SELECT w.step_id, avg(g.observed_ns - w.step_ns) / 1e6, avg(w.stretched_ns - w.step_ns) / 1e6 "
        "FROM v1.what_if AS w INNER JOIN v1.step_gap AS g USING (rank, step_id) "
        "WHERE w.removed = 'R2' GROUP BY w.step_id ORDER BY w.step_id"
    )
    gained = {step: (less, slower) for step, less, slower in rows(queue, query)}
    assert gained[2] == (pytest.approx(0.9, abs=0.2), pytest.approx(0, abs=0.1))
    for step in (1, 3):
        assert 25 < gained[step][0] < 30
        assert 4 < gained[step][1] < 6
