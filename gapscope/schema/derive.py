"""Materialise the rank-level views of one rank, from its own files alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gapscope.schema.catalog import (
    PARQUET_OPTIONS,
    RUN_OPTION,
    columns,
    configure,
    count,
    exactly,
    impossible,
    quoted,
    run_level,
)
from gapscope.schema.tables import TABLES
from gapscope.schema.views import View, all_views, install

if TYPE_CHECKING:
    import duckdb

# Below this much Parquet a second thread costs memory and saves no time.
SMALL_RANK_BYTES = 4 << 20

# (rank, audit, view, number of failing rows)
AuditResult = tuple[int, str, str, int]


def derive_rank(
    run_directory: Path,
    rank: int,
    options: dict[str, str],
    threads: int,
    memory_limit: str | None,
    target: Path,
) -> list[AuditResult]:
    """Write `<view>.parquet` in `target` for every rank-level view; returns the audit results.

    Ranks need nothing of each other, so they run in parallel processes.
    """
    import duckdb

    relation = "VIEW"
    files = (run_directory / "data").glob(f"*/rank={rank}/*.parquet")
    if sum(file.stat().st_size for file in files) < SMALL_RANK_BYTES:
        threads = 1
        relation = "TABLE"
    con = duckdb.connect()
    try:
        configure(con, threads, memory_limit, target / "spill")
        con.execute("CREATE SCHEMA v1")
        con.execute(RUN_OPTION)
        con.executemany("INSERT INTO v1.run_option VALUES (?, ?)", [*options.items(), ("", "")])
        for table in TABLES.values():
            path = exactly(run_directory / "data" / table.name / f"rank={rank}", "*.parquet")
            con.execute(
                f'CREATE {relation} v1."{table.name}" AS SELECT {rank}::BIGINT AS rank, '
                f"{columns(table)} FROM read_parquet({path}, hive_partitioning = false)"
            )
        views = {view.name: view for view in all_views()}
        of_rank = [view for view in all_views() if not run_level(view, views)]
        for view in of_rank:
            _derive_view(con, view, target, rank, relation)
        return [
            (rank, audit, view.name, count(con, sql))
            for view in of_rank
            for audit, sql in view.audits.items()
        ]
    finally:
        con.close()


def _derive_view(
    con: duckdb.DuckDBPyConnection, view: View, target: Path, rank: int, relation: str
) -> None:
    import duckdb

    try:
        if view.materialise == "rank":
            file = target / f"{view.short_name}.parquet"
            kept = ", ".join(f'"{c.name}"' for c in view.columns if c.name != "rank")
            con.execute(
                f"COPY (SELECT {kept} FROM ({view.query})) TO {quoted(file)} ({PARQUET_OPTIONS})"
            )
            names = ", ".join(
                f"{rank}::BIGINT AS rank" if c.name == "rank" else f'"{c.name}"'
                for c in view.columns
            )
            source = exactly(target, file.name)
            con.execute(
                f"CREATE {relation} {view.name} AS "
                f"SELECT {names} FROM read_parquet({source}, hive_partitioning = false)"
            )
        else:
            install(con, view)
    except duckdb.DataError as error:
        raise impossible(f"rank {rank}", view.name, error) from error
