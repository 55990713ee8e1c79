"""Whether two runs hold the same rows in every table and view."""

from __future__ import annotations

from pathlib import Path

import duckdb


def differences(left: Path, right: Path) -> dict[str, int]:
    """Rows by name of the table or view that one of two runs has and the other has not."""
    found = {}
    with duckdb.connect() as con:
        for alias, run in (("l", left), ("r", right)):
            con.execute(f"ATTACH '{run}/run.duckdb' AS {alias} (READ_ONLY)")
        names = con.execute(
            "SELECT view_name FROM duckdb_views() WHERE database_name = 'l' AND schema_name = 'main' "
            "AND NOT internal"
        ).fetchall()
        assert len(names) > 50
        for (name,) in names:
            for alias, run in (("l", left), ("r", right)):
                con.execute(f"SET VARIABLE gapscope_run = '{run}'")
                con.execute(f'CREATE OR REPLACE TEMP TABLE of_{alias} AS FROM {alias}.v1."{name}"')
            row = con.execute(
                "SELECT count(*) FROM ((FROM of_l EXCEPT ALL FROM of_r) "
                "UNION ALL (FROM of_r EXCEPT ALL FROM of_l))"
            ).fetchone()
            if row[0]:
                found[name] = row[0]
    return found
