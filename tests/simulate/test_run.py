"""A simulated run is a run: views, audits, report; and its truth is a table of it."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import gapscope
from gapscope.simulate.clock import clocks
from gapscope.simulate.run import write_run
from gapscope.simulate.spec import example, parse

SPEC = """
ranks = 3
steps = 4
[model]
blocks = 3
layers_per_block = 1
[clock]
offset_us = 5_000.0
drift_ppb = 500.0
ranks_per_host = 2
[[injection]]
class = "R3"
ranks = [1]
steps = [1, 3]
amount_ms = 10.0
[[injection]]
class = "R2"
place = "hw_queue"
"""


def write(directory: Path, text: str, name: str = "sim") -> Path:
    source = directory / f"{name}.toml"
    source.write_text(text)
    return write_run(source, directory / f"{name}.run").out


def rows(run: Path, query: str) -> list[tuple]:
    with gapscope.open_run(run) as opened:
        return opened.sql(query).rows()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("simulate"), SPEC)


def test_every_audit_holds_and_quality_has_nothing_to_say(run):
    assert rows(run, "SELECT count(*) > 0, sum(failed_count) FROM audit_result") == [(True, 0)]
    noted = "SELECT check_name, detail FROM capture_quality WHERE status NOT IN ('ok', 'info')"
    assert rows(run, noted) == []
    forbidden = "SELECT DISTINCT forbids FROM capture_quality WHERE check_name = 'simulated'"
    assert rows(run, forbidden) == [("anything about a real machine",)]


def test_launches_waits_and_collectives_are_complete(run):
    assert rows(run, "SELECT count(*) FROM op WHERE launch_call_id IS NULL") == [(0,)]
    assert rows(
        run,
        """SELECT count(DISTINCT (type, elements_in, elements_out)), count(DISTINCT rank), min(seq)
        FROM collective GROUP BY group_name, seq HAVING seq = 1""",
    ) == [(1, 3, 1)]
    assert rows(
        run,
        """SELECT count(*) FROM collective AS c INNER JOIN op AS o
            ON c.rank = o.rank AND c.op_id = o.op_id AND c.correlation_id = o.correlation_id
        WHERE o.op_class = 'nccl'""",
    ) == rows(run, "SELECT count(*) FROM collective")


def test_truth_is_the_step_budget_to_the_nanosecond(run):
    assert rows(
        run,
        """SELECT count(*), count(*) FILTER (WHERE t.observed_ns <> b.step_ns),
            count(*) FILTER (WHERE t.compute_ns <> b.compute_ns)
        FROM simulated_truth AS t
        INNER JOIN step_budget AS b USING (rank, step_id)
        WHERE b.projection = 'device'""",
    ) == [(2 * 3 * 4, 0, 0)]


def test_truth_says_what_each_injection_cost_where(run):
    query = """SELECT step_id, rank, is_injected_here, expected_class, round(injected_ns / 1e6)
        FROM simulated_truth WHERE injection = {} ORDER BY step_id, rank"""
    slept = rows(run, query.format(0))
    for step, rank, here, expected, cost in slept:
        if step in (1, 3):
            assert here == (rank == 1)
            assert expected == ("R1" if rank == 1 else "R3")
            assert 9 <= cost <= 10
        else:
            assert (here, expected, cost) == (False, None, 0)
    held = rows(run, query.format(1))
    assert all(here and expected == "R2" and cost > 3 for _, _, here, expected, cost in held)


def test_pieces_tile_the_long_gaps(run):
    """Pieces lie end to end, inside their step, and hold the injected classes."""
    assert rows(
        run,
        """SELECT count(*) FROM (
            SELECT p.start_ns - lag(p.end_ns) OVER w AS after, p.op_id - lag(p.op_id) OVER w AS ahead
            FROM simulated_piece AS p WINDOW w AS (PARTITION BY rank ORDER BY start_ns)
        ) WHERE after < 0""",
    ) == [(0,)]
    assert rows(
        run,
        """SELECT count(*) FROM simulated_piece AS p INNER JOIN step AS s USING (rank, step_id)
        WHERE p.start_ns < s.device_start_ns OR p.end_ns > s.device_end_ns""",
    ) == [(0,)]
    # A gap is explained in full or too short to be listed; windows cut what compute_gap has whole.
    assert rows(
        run,
        """WITH gap AS (
            SELECT g.rank, g.gap_id, s.step_id, least(g.end_ns, s.device_end_ns)
                - greatest(g.start_ns, s.device_start_ns) AS gap_ns,
                greatest(g.start_ns, s.device_start_ns) AS start_ns,
                least(g.end_ns, s.device_end_ns) AS end_ns
            FROM compute_gap AS g INNER JOIN step AS s ON g.rank = s.rank
                AND g.end_ns > s.device_start_ns AND g.start_ns < s.device_end_ns
        ), explained AS (
            SELECT g.rank, g.gap_id, g.step_id, g.gap_ns,
                coalesce(sum(p.end_ns - p.start_ns), 0) AS piece_ns
            FROM gap AS g LEFT JOIN simulated_piece AS p
                ON g.rank = p.rank AND p.start_ns >= g.start_ns AND p.end_ns <= g.end_ns
            GROUP BY ALL
        )
        SELECT count(*) FILTER (WHERE piece_ns = gap_ns) > 10,
            count(*) FILTER (WHERE piece_ns <> gap_ns AND (piece_ns > 0 OR gap_ns > 100_100))
        FROM explained""",
    ) == [(True, 0)]
    by_class = dict(
        rows(
            run,
            """SELECT wait_class, sum(end_ns - start_ns) FROM simulated_piece
            WHERE rank = 0 AND step_id = 1 GROUP BY wait_class""",
        )
    )
    assert by_class["R3"] > 9_000_000
    assert by_class["R2"] > 1_000_000


def test_clocks_differ_and_the_rank_table_says_by_how_much(run):
    bases = [base for (base,) in rows(run, "SELECT clock_base_ns FROM rank ORDER BY rank")]
    assert len(set(bases)) == 3
    told = rows(run, "SELECT offset_ns FROM simulated_clock ORDER BY rank")
    assert len({base + offset for base, (offset,) in zip(bases, told, strict=True)}) == 1
    # Ends of one collective on the Unix clock: apart by what ranks end early, and by drift.
    ends = """SELECT max(at_ns) - min(at_ns) FROM (
        SELECT c.seq, o.end_ns + r.clock_base_ns AS at_ns FROM collective AS c
        INNER JOIN op AS o ON c.rank = o.rank AND c.op_id = o.op_id
        INNER JOIN rank AS r ON c.rank = r.rank
    ) GROUP BY seq"""
    assert max(apart for (apart,) in rows(run, ends)) < 40_000
    assert rows(run, "SELECT hostname FROM rank ORDER BY rank") == [
        ("host0",),
        ("host0",),
        ("host1",),
    ]


def test_an_undeclared_offset_is_not_told(tmp_path):
    text = SPEC.replace("offset_us", "declared = false\noffset_us")
    out = write(tmp_path, text)
    assert rows(out, "SELECT DISTINCT clock_base_ns FROM rank") == [(None,)]
    assert rows(out, "SELECT count(*) FROM clock_anchor") == [(0,)]
    offsets = [clock.offset_ns for clock in clocks(parse(text))]
    assert max(offsets) - min(offsets) > 100_000


def test_the_report_can_be_written(run):
    with gapscope.open_run(run) as opened:
        document = opened.report()
    from gapscope.render import html, text

    assert "simulated" in text.render(document)
    assert html.render(document).startswith("<!DOCTYPE html>")


def test_one_spec_makes_one_run_and_another_seed_another(tmp_path, run):
    facts = "SELECT rank, op_id, start_ns, end_ns FROM gpu_op ORDER BY rank, op_id"
    truth = "FROM simulated_truth ORDER BY ALL"
    again = write(tmp_path, SPEC, "again")
    assert rows(again, facts) == rows(run, facts)
    assert rows(again, truth) == rows(run, truth)
    other = write(tmp_path, f"seed = 1\n{SPEC}", "other")
    assert rows(other, facts) != rows(run, facts)


def test_any_shell_shows_the_truth(run):
    with duckdb.connect(str(run / "run.duckdb"), read_only=True) as con:
        told = con.execute(
            "SELECT count(*) FROM duckdb_columns() WHERE table_name IN "
            "('simulated_truth', 'simulated_piece', 'simulated_clock') AND schema_name = 'v1' AND comment IS NULL"
        ).fetchone()
        kept = con.execute("SELECT count(*) FROM simulated_truth").fetchone()
    assert (told, kept) == ((0,), (24,))
    assert (run / "spec.toml").read_text() == SPEC


def test_the_example_names_every_key_at_its_default():
    parsed = parse(example())
    assert parsed.injection
    plain = parse("")
    assert [getattr(parsed, name) for name in ("model", "compute", "transfer", "host")] == [
        getattr(plain, name) for name in ("model", "compute", "transfer", "host")
    ]


def test_nothing_injected_costs_nothing(tmp_path):
    out = write(tmp_path, "ranks = 1\nsteps = 2\n[model]\nblocks = 1\n")
    assert rows(
        out,
        """SELECT DISTINCT injected_class, injection, injected_ns, expected_class,
            observed_ns = clean_step_ns FROM simulated_truth""",
    ) == [("none", None, 0, None, True)]
