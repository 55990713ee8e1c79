"""Unions and the three-way split against brute force, over random ops and windows."""

from __future__ import annotations

import itertools

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gapscope.schema.views import view_named
from tests.real.sound import CONTRADICTIONS

from .interval_truth import ALL, Op, budget

CLASSES = sorted(ALL)

PIECES_AND_BUDGET = CONTRADICTIONS["pieces add up to the split of the budget"]


@st.composite
def _ops(draw: st.DrawFn) -> list[Op]:
    ops = []
    for op_id in range(draw(st.integers(0, 14))):
        start = draw(st.integers(0, 60))
        length = draw(st.integers(1, 25))
        issued = draw(st.none() | st.integers(0, 30).map(lambda d, s=start: s - d))
        producer = draw(st.none() | st.integers(-5, 90))
        ops.append(
            Op(op_id, draw(st.sampled_from(CLASSES)), start, start + length, issued, producer)
        )
    # Ops of equal class and start differ in op_id only; the lowest closes the gap.
    return ops


@st.composite
def _windows(draw: st.DrawFn) -> list[tuple[int, int]]:
    edges = sorted(draw(st.lists(st.integers(-10, 95), min_size=2, max_size=7)))
    return list(itertools.pairwise(edges))


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(config={"threads": 1})
    con.execute("CREATE SCHEMA v1")
    con.execute(
        "CREATE TABLE v1.device_op (rank BIGINT, op_id BIGINT, time_class VARCHAR, start_ns BIGINT, "
        "end_ns BIGINT, issued_ns BIGINT, previous_op_id BIGINT, previous_end_ns BIGINT)"
    )
    con.execute(
        "CREATE TABLE v1.event_producer (rank BIGINT, op_id BIGINT, producer_op_id BIGINT, "
        "producer_end_ns BIGINT, unresolved_waits BIGINT)"
    )
    con.execute(
        "CREATE TABLE v1.step_window (rank BIGINT, step_id BIGINT, projection VARCHAR, "
        "label VARCHAR, source VARCHAR, start_ns BIGINT, end_ns BIGINT, is_partial BOOLEAN)"
    )
    for name in ("binding_producer", "window_budget", "compute_gap", "absent_piece"):
        view = view_named(name)
        con.execute(f"CREATE VIEW {view.name} AS {view.query}")
    return con


def _load(
    con: duckdb.DuckDBPyConnection, ranks: dict[int, list[Op]], windows: list[tuple[int, int]]
) -> None:
    for table in ("device_op", "event_producer", "step_window"):
        con.execute(f"DELETE FROM v1.{table}")
    rows = [(rank, op) for rank, ops in ranks.items() for op in ops]
    for rank, op in rows:
        con.execute(
            f"INSERT INTO v1.device_op VALUES ({rank}, {op.op_id}, '{op.time_class}', {op.start}, "
            f"{op.end}, {_literal(op.issued)}, NULL, NULL)"
        )
        if op.producer_end is not None:
            con.execute(
                f"INSERT INTO v1.event_producer VALUES ({rank}, {op.op_id}, {op.op_id}, "
                f"{op.producer_end}, 0)"
            )
    for rank in ranks:
        for step, (start, end) in enumerate(windows):
            con.execute(
                f"INSERT INTO v1.step_window VALUES ({rank}, {step}, 'host', '', '', {start}, "
                f"{end}, false)"
            )


def _literal(value: int | None) -> str:
    return "NULL" if value is None else str(value)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(ops=_ops(), other=_ops(), windows=_windows())
def test_window_budget_equals_brute_force(
    connection: duckdb.DuckDBPyConnection,
    ops: list[Op],
    other: list[Op],
    windows: list[tuple[int, int]],
) -> None:
    """Every column of every window, with a second rank that must not interfere."""
    ranks = {0: ops, 7: other}
    _load(connection, ranks, windows)
    cursor = connection.execute("SELECT * FROM v1.window_budget")
    names = [column[0] for column in cursor.description]
    found = {}
    for values in cursor.fetchall():
        row = dict(zip(names, values, strict=True))
        found[row["rank"], row["step_id"]] = row
    assert len(found) == len(ranks) * len(windows)
    for rank, rank_ops in ranks.items():
        for step, (start, end) in enumerate(windows):
            expected = budget(rank_ops, start, end)
            row = found[rank, step]
            assert {name: row[name] for name in expected} == expected


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(ops=_ops(), windows=_windows())
def test_audits_hold_on_random_ops(
    connection: duckdb.DuckDBPyConnection, ops: list[Op], windows: list[tuple[int, int]]
) -> None:
    """The pieces that the Gantt draws sum to the budget, and the budget closes."""
    _load(connection, {3: ops}, windows)
    for audit, sql in view_named("window_budget").audits.items():
        assert connection.execute(sql).fetchall() == [], audit
    assert connection.execute(PIECES_AND_BUDGET).fetchall() == []


def test_the_check_can_fail(connection: duckdb.DuckDBPyConnection) -> None:
    """A check that cannot fail is no check: a wrong piece must be reported."""
    _load(connection, {0: [Op(0, "compute", 10, 20, 5, None)]}, [(0, 30)])
    assert connection.execute(PIECES_AND_BUDGET).fetchall() == []
    broken = PIECES_AND_BUDGET.replace("sum(p.dur_ns)", "sum(p.dur_ns + 1)")
    assert connection.execute(broken).fetchall() != []
