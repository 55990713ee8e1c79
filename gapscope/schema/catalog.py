"""`run.duckdb`: canonical tables as views on Parquet, the SQL views, small results as tables."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gapscope.errors import GapscopeError
from gapscope.schema.results import RESULT_TABLES
from gapscope.schema.tables import TABLES, Table
from gapscope.schema.views import SQL_VERSION, View, all_views, comment, install

if TYPE_CHECKING:
    import duckdb

# A DuckDB shell older than the Python package must open the run.
STORAGE_VERSION = "v1.2.0"

# Small canonical tables live in run.duckdb itself: the verdict stays readable without the Parquet.
NATIVE_TABLES = frozenset(
    {
        "rank",
        "name",
        "source_quality",
        "process_group",
        "fsdp_group",
        "environment",
        "clock_anchor",
        "stream",
        "diagnostic",
    }
)

# Delta-encoded integers (version 2) halve the file and the time of writing it; a dictionary pays
# only for columns with few distinct values.
PARQUET_OPTIONS = (
    "FORMAT parquet, PARQUET_VERSION v2, COMPRESSION zstd, COMPRESSION_LEVEL 1, "
    "DICTIONARY_SIZE_LIMIT 1000"
)

# DuckDB often expects few rows behind a filter: an ASOF join then compares all pairs of rows.
SORTED_ASOF = "SET asof_loop_join_threshold = 0"

# Characters that DuckDB's globs take for patterns, and how one stands for itself.
_PATTERN, _LITERAL = "([*?[])", r"[\1]"
RANK_OF_FILE = "regexp_extract(filename, '[/\\\\]rank=(-?[0-9]+)[/\\\\][^/\\\\]*$', 1)::BIGINT"

# (check_name, status, detail, forbids)
IngestNote = tuple[str, str, str, str | None]
# What the ingest as a whole noticed: files that are no captures, or could not be read.
INGEST_NOTE = """CREATE TABLE v1.ingest_note (
    check_name VARCHAR, status VARCHAR, detail VARCHAR, forbids VARCHAR)"""
_AUDIT_RESULT = """CREATE TABLE v1.audit_result (
    rank BIGINT, audit_name VARCHAR, view_name VARCHAR, failed_count BIGINT)"""
# Tables of the run itself, that no capture fills.
RUN_TABLES = ("run_option", "audit_result", "ingest_note")
RUN_OPTION = "CREATE TABLE v1.run_option (name VARCHAR, value VARCHAR)"


def run_level(view: View, views: dict[str, View]) -> bool:
    """Whether a view needs all ranks: it, or something it depends on, is a table of the run."""
    if view.materialise == "run":
        return True
    results = {f"v1.{name}" for name in (*RESULT_TABLES, "audit_result")}
    if not results.isdisjoint(view.depends_on):
        return True
    return any(run_level(views[name], views) for name in view.depends_on if name in views)


def define(run_directory: Path, final_location: Path) -> None:
    """Begin `run.duckdb`: every table and view with its comments, no rows.

    Needs no capture, so an ingest does it while it still reads. The views are bound to empty
    Parquet files of the right columns. `final_location` is where the directory will stand: views
    resolve their files against the variable `gapscope_run`, or else against that path.
    """
    import duckdb

    con = duckdb.connect()
    try:
        configure(con, 1, None, run_directory / "spill")
        _attach(con, run_directory)
        skeleton = run_directory / "skeleton"
        _write_skeleton(con, skeleton)
        con.execute(f"SET VARIABLE gapscope_run = {quoted(skeleton)}")
        # One transaction: hundreds of statements, one write to disk.
        con.execute("BEGIN")
        con.execute("CREATE SCHEMA v1")
        con.execute(RUN_OPTION)
        con.execute(_AUDIT_RESULT)
        con.execute(INGEST_NOTE)
        for table in TABLES.values():
            _install_table(con, table, final_location)
        for table in RESULT_TABLES.values():
            _install_result(con, table)
        for view in all_views():
            if view.materialise == "rank":
                _install_derived(con, view, final_location)
            elif view.materialise == "run":
                con.execute(f"CREATE TABLE {view.name} AS {view.query} WITH NO DATA")
            else:
                install(con, view)
            comment(con, view, "TABLE" if view.materialise == "run" else "VIEW")
        named = [*TABLES, *RESULT_TABLES, *RUN_TABLES]
        for name in [*named, *(view.short_name for view in all_views())]:
            con.execute(f'CREATE VIEW main."{name}" AS FROM {SQL_VERSION}."{name}"')
        con.execute("COMMIT")
        con.execute("USE memory")
        con.execute("DETACH run")
        shutil.rmtree(skeleton)
    finally:
        con.close()


def fill(
    run_directory: Path,
    options: dict[str, str],
    audits: list[tuple[int, str, str, int]],
    notes: list[IngestNote],
    threads: int,
    memory_limit: str | None,
) -> None:
    """End the `run.duckdb` that `define` began, over the finished Parquet of all ranks."""
    import duckdb

    con = duckdb.connect()
    at = "the tables"
    try:
        configure(con, threads, memory_limit, run_directory / "spill")
        _attach(con, run_directory)
        con.execute("BEGIN")
        con.execute(f"SET VARIABLE gapscope_run = {quoted(run_directory)}")
        con.executemany("INSERT INTO v1.run_option VALUES (?, ?)", [*options.items(), ("", "")])
        con.execute("DELETE FROM v1.run_option WHERE name = ''")
        if notes:
            con.executemany("INSERT INTO v1.ingest_note VALUES (?, ?, ?, ?)", notes)
        if audits:
            con.executemany("INSERT INTO v1.audit_result VALUES (?, ?, ?, ?)", audits)
        for name in NATIVE_TABLES:
            query = _table_query(TABLES[name], run_directory)
            con.execute(f'INSERT INTO v1."{name}" {query}')
        views = {view.name: view for view in all_views()}
        for view in all_views():
            at = view.name
            if view.materialise == "run":
                con.execute(f"INSERT INTO {view.name} {view.query}")
            if run_level(view, views):
                results = [
                    (None, audit, view.name, count(con, sql)) for audit, sql in view.audits.items()
                ]
                if results:
                    con.executemany("INSERT INTO v1.audit_result VALUES (?, ?, ?, ?)", results)
        con.execute("COMMIT")
        con.execute("USE memory")
        con.execute("DETACH run")
    except duckdb.DataError as error:
        raise impossible("the run", at, error) from error
    finally:
        con.close()


@contextlib.contextmanager
def opened(
    run_directory: Path, threads: int, memory_limit: str | None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """An unfinished run, open for writing in the same storage version."""
    import duckdb

    con = duckdb.connect()
    try:
        configure(con, threads, memory_limit, run_directory / "spill")
        _attach(con, run_directory)
        con.execute(f"SET VARIABLE gapscope_run = {quoted(run_directory)}")
        yield con
    finally:
        con.close()


def _attach(con: duckdb.DuckDBPyConnection, run_directory: Path) -> None:
    database = quoted(run_directory / "run.duckdb")
    con.execute(f"ATTACH {database} AS run (STORAGE_VERSION '{STORAGE_VERSION}')")
    con.execute("USE run")


def _write_skeleton(con: duckdb.DuckDBPyConnection, directory: Path) -> None:
    """Parquet files without rows, one a table or view that will have some."""
    files = [("data", table.name, table.columns) for table in TABLES.values()]
    files += [
        ("derived", view.short_name, view.columns)
        for view in all_views()
        if view.materialise == "rank"
    ]
    for kind, name, its_columns in files:
        target = directory / kind / name / "rank=0"
        target.mkdir(parents=True)
        nulls = ", ".join(f'NULL::{c.type} AS "{c.name}"' for c in its_columns if c.name != "rank")
        file = quoted(target / "data.parquet")
        con.execute(f"COPY (SELECT {nulls} LIMIT 0) TO {file} (FORMAT parquet)")


def relink(run_directory: Path) -> None:
    """Point the views of a moved run at its new place, for shells that set no variable."""
    import duckdb

    try:
        con = duckdb.connect(str(run_directory / "run.duckdb"))
    except duckdb.Error as error:
        raise GapscopeError(
            "cannot-write",
            f"`{run_directory / 'run.duckdb'}` cannot be changed: {str(error).splitlines()[0]}",
            "close programs that have it open, check its permissions",
        ) from error
    try:
        here = run_directory.resolve()
        con.execute(f"SET VARIABLE gapscope_run = {quoted(here)}")
        for table in TABLES.values():
            if table.name not in NATIVE_TABLES:
                _install_table(con, table, here)
        for view in all_views():
            if view.materialise == "rank":
                _install_derived(con, view, here)
                comment(con, view)
    finally:
        con.close()


def configure(
    con: duckdb.DuckDBPyConnection, threads: int, memory_limit: str | None, spill: Path
) -> None:
    """Limits of one connection; it spills into the unfinished run, which failure removes."""
    con.execute(f"SET threads = {threads}")
    con.execute(SORTED_ASOF)
    con.execute(f"SET temp_directory = {quoted(spill)}")
    # Nothing is ever downloaded: users sit behind firewalls.
    con.execute("SET autoinstall_known_extensions = false")
    con.execute("SET preserve_insertion_order = false")
    # DuckDB draws its bar on stdout, which is for data.
    con.execute("SET enable_progress_bar = false")
    if memory_limit is not None:
        con.execute(f"SET memory_limit = {quoted(memory_limit)}")


def _install_table(con: duckdb.DuckDBPyConnection, table: Table, location: Path) -> None:
    kind = "TABLE" if table.name in NATIVE_TABLES else "VIEW"
    query = _table_query(table, location)
    con.execute(f'CREATE OR REPLACE {kind} v1."{table.name}" AS {query}')
    _describe(con, table, kind)


def _install_result(con: duckdb.DuckDBPyConnection, table: Table) -> None:
    """An empty table that the model fills."""
    listed = ", ".join(f'"{column.name}" {column.type}' for column in table.columns)
    con.execute(f'CREATE TABLE v1."{table.name}" ({listed})')
    _describe(con, table, "TABLE")


def _describe(con: duckdb.DuckDBPyConnection, table: Table, kind: str) -> None:
    text = f"{table.doc} Grain: {table.grain}.".replace("'", "''")
    statements = [f"COMMENT ON {kind} v1.\"{table.name}\" IS '{text}'"]
    for column in table.columns:
        unit = "" if column.unit == "-" else f" [{column.unit}]"
        meaning = (column.doc + unit).replace("'", "''")
        statements.append(f'COMMENT ON COLUMN v1."{table.name}"."{column.name}" IS \'{meaning}\'')
    con.execute("; ".join(statements))


def _table_query(table: Table, location: Path) -> str:
    source = _parquet("data", table.name, location)
    return f"SELECT {RANK_OF_FILE} AS rank, {columns(table)} FROM {source}"


def _install_derived(con: duckdb.DuckDBPyConnection, view: View, location: Path) -> None:
    names = ", ".join(
        f'{RANK_OF_FILE} AS "rank"' if column.name == "rank" else f'"{column.name}"'
        for column in view.columns
    )
    install(con, view, f"SELECT {names} FROM {_parquet('derived', view.short_name, location)}")


def _parquet(kind: str, name: str, location: Path) -> str:
    base = f"coalesce(getvariable('gapscope_run'), {quoted(location)})"
    # The run may lie anywhere: nothing in its path is a pattern, and `x=1/` no partition.
    literal = f"regexp_replace({base}, {quoted(_PATTERN)}, {quoted(_LITERAL)}, 'g')"
    # Whoever asks about one of a thousand ranks need not have the files of all listed and planned.
    ranks = "coalesce('rank=' || getvariable('gapscope_only_rank'), '*')"
    return (
        f"read_parquet({literal} || '/{kind}/{name}/' || {ranks} || '/*.parquet', "
        "hive_partitioning = false, filename = true)"
    )


def exactly(directory: Path, pattern: str) -> str:
    """Quoted glob of the files in one directory whose own name is no pattern."""
    literal = re.sub(_PATTERN, lambda match: f"[{match[0]}]", str(directory))
    return quoted(f"{literal}/{pattern}")


def columns(table: Table) -> str:
    return ", ".join(f'"{column.name}"' for column in table.columns)


def impossible(what: str, view: str, error: Exception) -> GapscopeError:
    # Only the kind is named: the text of the exception may quote the capture.
    return GapscopeError(
        "impossible-values",
        f"{what}: times or sizes of the capture overflow {view} ({type(error).__name__})",
        "capture again, or leave the rank out",
    )


def count(con: duckdb.DuckDBPyConnection, sql: str) -> int:
    row = con.execute(f"SELECT count(*) FROM ({sql})").fetchone()
    return int(row[0]) if row else 0


def quoted(text: Path | str) -> str:
    return "'" + str(text).replace("'", "''") + "'"
