"""Questions that tests ask of an analysed run, in ms; boundary steps stay out unless asked for."""

from __future__ import annotations

from statistics import mean
from typing import Any

import duckdb

MS = 1e6


def column(
    con: duckdb.DuckDBPyConnection, name: str, rank: int | None = None, since: int = 0
) -> list[float]:
    """One value a rank and step of step_gap."""
    where = "" if rank is None else f"AND rank = {rank}"
    rows = con.execute(
        f"SELECT ({name}) / {MS} FROM step_gap WHERE NOT is_boundary AND step_id >= {since} {where} ORDER BY step_id, rank"
    ).fetchall()
    assert rows, "no step has a bound"
    return [row[0] for row in rows]


def average(con: duckdb.DuckDBPyConnection, name: str, rank: int | None = None) -> float:
    return mean(column(con, name, rank))


def rung(
    con: duckdb.DuckDBPyConnection, removed: str, column: str = "step_ns", since: int = 0
) -> list[float]:
    """Length of each step without these mechanisms: the largest over ranks."""
    rows = con.execute(
        f"SELECT max(w.{column}) / {MS} FROM what_if AS w JOIN step_gap AS g USING (rank, step_id) "
        f"WHERE w.removed = $1 AND NOT g.is_boundary AND w.step_id >= {since} GROUP BY w.step_id ORDER BY w.step_id",
        [removed],
    ).fetchall()
    assert rows, "no ladder"
    return [row[0] for row in rows]


def checks(con: duckdb.DuckDBPyConnection, name: str) -> list[dict[str, Any]]:
    found = con.execute("SELECT * FROM model_check WHERE check_name = $1 ORDER BY step_id", [name])
    names = [one[0] for one in found.description]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def scalar(con: duckdb.DuckDBPyConnection, sql: str) -> Any:
    ((value,),) = con.execute(sql).fetchall()
    return value


PARTS = "compute_ns + work_ns + r1_ns + r2_ns + r3_ns + h1_ns + h2_ns + floor_ns + unresolved_ns + carried_ns"


def assert_books_balance(con: duckdb.DuckDBPyConnection) -> None:
    """Design, sections 3 and 8: 0 ns, on every rank and step, boundary or not, provisional or not."""
    assert scalar(con, "SELECT count(*) FROM step_gap") > 0
    for wrong in (
        f"SELECT * FROM step_gap WHERE {PARTS} <> observed_ns",
        """
        FROM step_gap WHERE r1_ns + r2_ns + r3_ns + floor_ns + unresolved_ns + carried_ns <> observed_ns - t_lb_ns
            OR gap_ns <> observed_ns - t_lb_ns
        """,
        """
        FROM step_gap JOIN step_budget USING (rank, step_id) WHERE projection = 'device'
            AND (step_ns <> observed_ns OR step_budget.compute_ns <> step_gap.compute_ns)
        """,
        # Pieces: of the classes' sums, and together all of the time without compute.
        """
        FROM (
            SELECT rank, step_id, gap_class, sum(end_ns - start_ns) AS ns FROM gap_piece GROUP BY ALL
        ) FULL JOIN (
            UNPIVOT (
                SELECT rank, step_id, work_ns AS work, r1_ns AS R1, r2_ns AS R2, r3_ns AS R3, h1_ns AS H1, h2_ns AS H2,
                    floor_ns AS floor, unresolved_ns AS unresolved, carried_ns AS carried FROM step_gap
            ) ON work, R1, R2, R3, H1, H2, floor, unresolved, carried INTO NAME gap_class VALUE of_step
        ) USING (rank, step_id, gap_class)
        WHERE coalesce(ns, 0) <> coalesce(of_step, 0)
        """,
        """
        FROM (SELECT rank, step_id, sum(end_ns - start_ns) AS ns FROM gap_piece GROUP BY ALL)
        FULL JOIN (FROM step_budget WHERE projection = 'device' AND step_id IN (SELECT step_id FROM step_gap))
        USING (rank, step_id) WHERE ns IS DISTINCT FROM compute_absent_ns
        """,
        # Pieces of a rank neither overlap nor touch compute's window beyond its ends.
        """
        FROM (SELECT *, lead(start_ns) OVER (PARTITION BY rank, step_id ORDER BY start_ns) AS next FROM gap_piece)
        WHERE next < end_ns OR end_ns <= start_ns
        """,
    ):
        assert con.execute(wrong).fetchall() == [], wrong
