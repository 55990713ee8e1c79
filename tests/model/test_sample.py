"""The shipped sample: p_base, two ranks in partitions of one GPU, two hardware queues.

Its truth is known: 196 ms a step, and 158 once the driver had eight queues. Times in ms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import duckdb
import pytest

from gapscope.model.load import load
from gapscope.model.rules import fsdp2
from gapscope.schema.results import MODEL_TABLES
from tests.model.synth import Model, names, run
from tests.model.truth import MS, assert_books_balance, checks, column, rung, scalar


@pytest.fixture(scope="module")
def con(tiny_run: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    con = duckdb.connect(str(tiny_run / "run.duckdb"), read_only=True, config={"threads": 1})
    yield con
    con.close()


def test_books_balance(con: duckdb.DuckDBPyConnection) -> None:
    assert_books_balance(con)


def test_every_result_table_has_rows_and_its_grain(con: duckdb.DuckDBPyConnection) -> None:
    for name, table in MODEL_TABLES.items():
        assert scalar(con, f"SELECT count(*) FROM {name}") > 0, name
        repeated = f"SELECT {table.grain} FROM {name} GROUP BY {table.grain} HAVING count(*) > 1"
        assert con.execute(repeated).fetchall() == [], name


def test_no_rule_is_broken_and_the_replay_reproduces_the_run(
    con: duckdb.DuckDBPyConnection,
) -> None:
    assert {c["status"] for name in ("rule_pack", "rule_violations", "bound_order", "program_coverage")
            for c in checks(con, name)} == {"ok"}  # fmt: skip
    assert [c["measured"] for c in checks(con, "rule_violations")] == [0]
    assert max(abs(c["measured"]) for c in checks(con, "replay_error")) <= 0.005
    assert max(c["measured"] for c in checks(con, "unresolved")) <= 0.005
    assert scalar(con, "SELECT count(*) FROM model_check WHERE withholds IS NOT NULL") == 0
    assert scalar(con, "SELECT bool_or(is_provisional) FROM step_gap") is False


def test_observed_and_bound(con: duckdb.DuckDBPyConnection) -> None:
    assert column(con, "observed_ns") == pytest.approx([196.2] * 6, abs=0.6)
    assert column(con, "t_lb_ns") == pytest.approx([155.3] * 6, abs=0.6)


def test_hardware_queues_are_the_gap(con: duckdb.DuckDBPyConnection) -> None:
    assert column(con, "r2_ns") == pytest.approx([37.5] * 6, abs=1.5)
    assert max(column(con, "r1_ns + r3_ns")) < 0.02 * 196
    assert max(column(con, "unresolved_ns + carried_ns")) < 0.5
    assert rung(con, "R2") == pytest.approx([157.7] * 3, abs=1)
    assert all(a > b for a, b in zip(rung(con, "R2", "stretched_ns"), rung(con, "R2"), strict=True))
    rows = con.execute(
        "SELECT sub_cause, rule, count(*) FROM gap_piece WHERE gap_class = 'R2' GROUP BY 1, 2 ORDER BY 3 DESC"
    ).fetchall()
    assert rows[0][:2] == ("hw_queue", "Q1")


def test_evidence_of_pieces(con: duckdb.DuckDBPyConnection) -> None:
    """Each piece names what its class needs; causes of hidden lateness lie on some rank's own clock."""
    for wrong in (
        "gap_class IN ('R1', 'R2', 'R3', 'work') AND (op_id IS NULL OR node IS NULL)",
        "gap_class = 'R1' AND sub_cause NOT IN ('sync call', 'allocation', 'module load', 'other API', 'no CUDA call')",
        "gap_class = 'R2' AND sub_cause NOT IN ('stream', 'hw_queue')",
        "gap_class = 'R3' AND (culprit_rank IS NULL OR (NOT is_hidden AND culprit_rank = rank))",
        "gap_class IN ('R1', 'R2', 'R3') AND cause_rank IS NULL",
        "NOT is_hidden AND rule IS DISTINCT FROM 'join' AND cause_rank <> rank",
        "NOT is_hidden AND rule = 'join' AND cause_rank <> culprit_rank",
        (
            "NOT is_hidden AND rule IS DISTINCT FROM 'join' "
            "AND (cause_start_ns, cause_end_ns) <> (start_ns, end_ns)"
        ),
        "NOT is_hidden AND rule = 'join' AND cause_end_ns - cause_start_ns < end_ns - start_ns",
        "is_hidden AND cause_end_ns - cause_start_ns < end_ns - start_ns AND gap_class <> 'H2'",
        "gap_class = 'H1' AND awaited_node NOT IN ('AG(root)', 'RS(root)')",
    ):
        assert con.execute(f"FROM gap_piece WHERE {wrong} LIMIT 3").fetchall() == [], wrong
    ops = con.execute("""
        FROM gap_piece AS p ANTI JOIN op_unit AS u
        ON p.rank = u.rank AND p.op_id = u.op_id AND p.step_id = u.step_id AND p.node = u.node
        WHERE p.op_id IS NOT NULL
    """).fetchall()
    assert ops == []


def test_chain_of_the_bound(con: duckdb.DuckDBPyConnection) -> None:
    """One chain a step, without slack, from the origin to T_lb, each tied by a rule of the pack or a resource."""
    chains = con.execute("""
        SELECT b.step_id, list(struct_pack(b.start_ns, b.end_ns, b.slack_ns, b.chain_rule) ORDER BY b.chain_position)
        FROM bound_node AS b WHERE b.chain_position IS NOT NULL GROUP BY b.step_id
    """).fetchall()
    assert len(chains) == 3
    for step, chain in chains:
        assert chain[0]["start_ns"] == 0
        assert chain[0]["chain_rule"] is None
        assert {link["slack_ns"] for link in chain} == {0}
        assert {link["chain_rule"] for link in chain[1:]} <= {*fsdp2.RULE, "engine", "link"}
        assert all(a["end_ns"] == b["start_ns"] for a, b in pairwise(chain))
        assert chain[-1]["end_ns"] == scalar(
            con, f"SELECT max(t_lb_ns) FROM step_gap WHERE step_id = {step}"
        )
    assert scalar(con, "SELECT min(slack_ns) FROM bound_node") == 0


def test_program_is_the_rule_books(con: duckdb.DuckDBPyConnection) -> None:
    """Root and six blocks, resharded: 7 + 6 gathers, 7 reductions, as the hooks issue them."""

    def known(of: list[str]) -> list[str]:
        """Without the root's compute, which depends on what stands between its hooks."""
        return [name for name in of if not name.startswith(("FWD(root)", "BWD(root)", "OPT(root)"))]

    (batch,) = load(con).batches
    found = [
        re.sub(r"blocks\.(\d)", lambda unit: str(int(unit[1]) + 1), node.name)
        for node in batch.program
    ]
    hooks = [name.replace("(R)", "(root)") for name in names(run(Model(blocks=6)).nodes)]
    assert known(found) == known(hooks)


def test_changes_a_user_can_make(con: duckdb.DuckDBPyConnection) -> None:
    longest = dict(
        con.execute(
            f"SELECT change, max(step_ns) / {MS} FROM what_if_change GROUP BY change"
        ).fetchall()
    )
    as_run = max(rung(con, ""))
    assert longest["more hardware queues"] == pytest.approx(158, abs=1)
    assert longest["+1 reduce-scatter buffer"] <= as_run + 0.001
    assert longest["reshard_after_forward=False"] < as_run
    assert longest["no pauses between launches"] <= as_run + 0.001
