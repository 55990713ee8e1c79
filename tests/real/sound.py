"""What must hold of any run, whatever was captured: audits, and what two views say of one time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

# Rows that contradict each other. These views are computed when they are read, so no ingest audits them.
CONTRADICTIONS = {
    "pieces add up to the split of the budget": """
SELECT b.rank, b.projection, b.step_id FROM v1.window_budget AS b LEFT JOIN v1.absent_piece AS p
ON b.rank = p.rank AND b.projection = p.projection AND b.step_id = p.step_id
GROUP BY b.rank, b.projection, b.step_id, b.launch_starved_ns, b.blocking_ns, b.stalled_ns, b.tail_ns
HAVING b.launch_starved_ns <> coalesce(sum(p.dur_ns) FILTER (WHERE p.absent_class = 'launch_starved'), 0)
OR b.blocking_ns <> coalesce(sum(p.dur_ns) FILTER (WHERE p.absent_class = 'blocking'), 0)
OR b.stalled_ns <> coalesce(sum(p.dur_ns) FILTER (WHERE p.absent_class = 'stalled'), 0)
OR b.tail_ns <> coalesce(sum(p.dur_ns) FILTER (WHERE p.absent_class = 'tail'), 0)""",
    "communication of all families is that of the budget": """
SELECT b.rank, b.projection, b.step_id FROM v1.window_budget AS b LEFT JOIN v1.family_time AS f
ON b.rank = f.rank AND b.projection = f.projection AND b.step_id = f.step_id AND f.level = 'total'
WHERE b.projection <> 'host'
AND (b.comm_ns <> coalesce(f.busy_ns, 0) OR b.exposed_comm_ns <> coalesce(f.exposed_ns, 0))""",
    "exposed within busy within volume": """
FROM v1.family_time WHERE exposed_ns < 0 OR exposed_ns > busy_ns OR busy_ns > volume_ns""",
    "compute of a unit within its span": """
FROM v1.block_table WHERE compute_ns > compute_end_ns - compute_start_ns""",
}


def assert_sound(con: duckdb.DuckDBPyConnection) -> None:
    assert one(con, "SELECT count(*) FROM v1.audit_result") > 0
    assert con.execute("FROM v1.audit_result WHERE failed_count > 0").fetchall() == []
    for what, query in CONTRADICTIONS.items():
        assert con.execute(query).fetchall() == [], what


def one(con: duckdb.DuckDBPyConnection, query: str) -> Any:
    row = con.execute(query).fetchone()
    assert row is not None
    return row[0]
