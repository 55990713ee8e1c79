"""Materialise the rank-level views of some ranks, from their own files alone."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gapscope.errors import GapscopeError
from gapscope.schema.catalog import (
    PARQUET_OPTIONS,
    RANK_OF_FILE,
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
# Planning the queries takes longer than running them on a small rank: so much is derived at once.
TOGETHER_BYTES = 8 << 20
# DuckDB keeps a hundred files open as it writes one a rank, and begins further ones beyond.
MOST_TOGETHER = 32

# (rank, audit, view, number of failing rows)
AuditResult = tuple[int, str, str, int]


class _ApartError(Exception):
    """What ranks are to be told of can only be told of each alone."""


def rank_bytes(run_directory: Path, rank: int) -> int:
    """Size of the canonical tables of a rank."""
    files = (run_directory / "data").glob(f"*/rank={rank}/*.parquet")
    return sum(file.stat().st_size for file in files)


def derive_ranks(
    run_directory: Path,
    targets: Mapping[int, Path],
    options: Mapping[str, str],
    threads: int,
    memory_limit: str | None,
) -> list[AuditResult]:
    """Write `<view>.parquet` for every rank-level view in the target of each rank.

    Returns the audit results. Ranks need nothing of each other, so they run in parallel processes,
    and small ones several at once.
    """
    if len(targets) > 1:
        try:
            return _derive(run_directory, targets, options, threads, memory_limit)
        except (GapscopeError, _ApartError):
            # One of them is odd, and which has to be said.
            pass
    return [
        result
        for rank, target in targets.items()
        for result in _derive(run_directory, {rank: target}, options, threads, memory_limit)
    ]


def _derive(
    run_directory: Path,
    targets: Mapping[int, Path],
    options: Mapping[str, str],
    threads: int,
    memory_limit: str | None,
) -> list[AuditResult]:
    import duckdb

    ranks = list(targets)
    is_small = len(ranks) > 1 or rank_bytes(run_directory, ranks[0]) < SMALL_RANK_BYTES
    relation = "TABLE" if is_small else "VIEW"
    home = targets[ranks[0]]
    con = duckdb.connect()
    try:
        configure(con, 1 if is_small else threads, memory_limit, home / "spill")
        con.execute("CREATE SCHEMA v1")
        con.execute(RUN_OPTION)
        con.executemany("INSERT INTO v1.run_option VALUES (?, ?)", [*options.items(), ("", "")])
        for table in TABLES.values():
            data = run_directory / "data" / table.name
            files = ", ".join(exactly(data / f"rank={rank}", "*.parquet") for rank in ranks)
            con.execute(
                f'CREATE {relation} v1."{table.name}" AS SELECT {RANK_OF_FILE} AS rank, '
                f"{columns(table)} FROM read_parquet([{files}], hive_partitioning = false, "
                "filename = true)"
            )
        views = {view.name: view for view in all_views()}
        of_rank = [view for view in all_views() if not run_level(view, views)]
        for view in of_rank:
            try:
                if view.materialise != "rank":
                    install(con, view)
                elif is_small:
                    _write_parts(con, view, targets)
                else:
                    _write_whole(con, view, ranks[0], home)
            except duckdb.DataError as error:
                raise impossible(f"rank {ranks[0]}", view.name, error) from error
        return [
            (rank, audit, view.name, failed)
            for view in of_rank
            for audit, sql in view.audits.items()
            for rank, failed in _count_by_rank(con, ranks, sql).items()
        ]
    finally:
        con.close()


def _write_whole(con: duckdb.DuckDBPyConnection, view: View, rank: int, target: Path) -> None:
    """The view of one large rank: nothing of it stays in memory."""
    file = target / f"{view.short_name}.parquet"
    kept = ", ".join(f'"{c.name}"' for c in view.columns if c.name != "rank")
    con.execute(f"COPY (SELECT {kept} FROM ({view.query})) TO {quoted(file)} ({PARQUET_OPTIONS})")
    names = ", ".join(
        f"{rank}::BIGINT AS rank" if c.name == "rank" else f'"{c.name}"' for c in view.columns
    )
    source = exactly(target, file.name)
    install(con, view, f"SELECT {names} FROM read_parquet({source}, hive_partitioning = false)")


def _write_parts(con: duckdb.DuckDBPyConnection, view: View, targets: Mapping[int, Path]) -> None:
    """The view of small ranks, in memory for the views behind it, and as a file of each."""
    con.execute(f"CREATE TABLE {view.name} AS {view.query}")
    parts = next(iter(targets.values())) / "parts"
    options = f"{PARQUET_OPTIONS}, PARTITION_BY (rank)"
    con.execute(f"COPY {view.name} TO {quoted(parts)} ({options})")
    empty: Path | None = None
    for rank, target in targets.items():
        file = target / f"{view.short_name}.parquet"
        written = list((parts / f"rank={rank}").glob("*.parquet"))
        if written:
            (only,) = written
            only.rename(file)
        elif empty is None:
            # A rank without rows has a file, too.
            kept = f"SELECT * EXCLUDE (rank) FROM {view.name} LIMIT 0"
            con.execute(f"COPY ({kept}) TO {quoted(file)} ({PARQUET_OPTIONS})")
            empty = file
        else:
            shutil.copyfile(empty, file)
    shutil.rmtree(parts, ignore_errors=True)


def _count_by_rank(
    con: duckdb.DuckDBPyConnection, ranks: Sequence[int], sql: str
) -> dict[int, int]:
    """Rows that an audit finds on each rank."""
    failed = count(con, sql)
    if not failed or len(ranks) == 1:
        return dict.fromkeys(ranks, failed)
    if "rank" not in [column[0] for column in con.execute(f"FROM ({sql}) LIMIT 0").description]:
        raise _ApartError
    by_rank = con.execute(f"SELECT rank, count(*) FROM ({sql}) GROUP BY rank").fetchall()
    return {**dict.fromkeys(ranks, 0), **dict(by_rank)}
