"""Every relation of `v1` as files, or as native tables of one self-contained database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gapscope.errors import GapscopeError
from gapscope.render.redact import Redactor
from gapscope.schema.catalog import RUN_TABLES, STORAGE_VERSION
from gapscope.schema.results import RESULT_TABLES
from gapscope.schema.tables import TABLES, Column
from gapscope.schema.views import all_views

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from gapscope.run import Run

_COPY_OPTIONS = {"parquet": "FORMAT parquet, COMPRESSION zstd", "csv": "FORMAT csv, HEADER"}


def export(run: Run, path: Path, form: str, redact: frozenset[str]) -> dict[str, int]:
    """Write `path` (a directory, or a file for duckdb); returns rows by relation."""
    import duckdb

    hosts = run.sql("SELECT hostname FROM v1.rank")["hostname"].to_list()
    redactor = Redactor(redact, hosts)
    con = duckdb.connect()
    try:
        con.execute("SET enable_progress_bar = false")
        con.execute(f"ATTACH {_literal(run.path / 'run.duckdb')} AS run (READ_ONLY)")
        con.execute(f"SET VARIABLE gapscope_run = {_literal(run.path.resolve())}")
        con.execute("USE run")
        if form == "duckdb":
            con.execute(f"ATTACH {_literal(path)} AS fat (STORAGE_VERSION '{STORAGE_VERSION}')")
            con.execute("CREATE SCHEMA fat.v1")
        else:
            path.mkdir()
        counts = {}
        for name, (order, doc, columns) in _relations().items():
            query = _query(con, name, order, redactor)
            if form == "duckdb":
                con.execute(f'CREATE TABLE fat.v1."{name}" AS {query}')
                con.execute(f'CREATE VIEW fat.main."{name}" AS FROM v1."{name}"')
                _comment(con, name, doc, columns)
                row = con.execute(f'SELECT count(*) FROM fat.v1."{name}"').fetchone()
            else:
                target = _literal(path / f"{name}.{form}")
                row = con.execute(f"COPY ({query}) TO {target} ({_COPY_OPTIONS[form]})").fetchone()
            counts[name] = int(row[0]) if row else 0
    except duckdb.IOException as error:
        raise GapscopeError(
            "cannot-read",
            str(error).splitlines()[0],
            f"was the run moved? `gapscope ingest --relink {run.path}`",
        ) from error
    finally:
        con.close()
    return counts


def _relations() -> dict[str, tuple[str, str, tuple[Column, ...]]]:
    """Name to grain, meaning and columns of everything that a run contains."""
    relations: dict[str, tuple[str, str, tuple[Column, ...]]] = {
        table.name: (table.grain, table.doc, table.columns)
        for table in (*TABLES.values(), *RESULT_TABLES.values())
    }
    for view in all_views():
        relations[view.short_name] = (", ".join(view.grain), view.purpose, view.columns)
    for name in RUN_TABLES:
        relations[name] = ("ALL", "", ())
    return relations


def _query(con: DuckDBPyConnection, name: str, order: str, redactor: Redactor) -> str:
    described = con.execute(f'DESCRIBE run.v1."{name}"').fetchall()
    columns = ", ".join(
        f'{redactor.sql(name, column)} AS "{column}"'
        if type_ == "VARCHAR" and redactor.kinds
        else f'"{column}"'
        for column, type_, *_ in described
    )
    return f'SELECT {columns} FROM run.v1."{name}" ORDER BY {order}'


def _comment(con: DuckDBPyConnection, name: str, doc: str, columns: tuple[Column, ...]) -> None:
    con.execute(f'COMMENT ON TABLE fat.v1."{name}" IS {_literal(doc)}')
    for column in columns:
        unit = "" if column.unit == "-" else f" [{column.unit}]"
        text = _literal(column.doc + unit)
        con.execute(f'COMMENT ON COLUMN fat.v1."{name}"."{column.name}" IS {text}')


def _literal(text: Path | str) -> str:
    return "'" + str(text).replace("'", "''") + "'"
