"""`gapscope sql`: rows, views and their text, or a shell; the run is never written to."""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
from collections.abc import Iterator
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapscope.cli import output
from gapscope.cli.options import DEFAULT_RUN, RunArgument
from gapscope.errors import GapscopeError
from gapscope.units import plain

if TYPE_CHECKING:
    from gapscope.run import Run

_PROMPT = "gapscope> "

# Names of kernels run to hundreds of characters; the start of one tells enough on a screen.
_CELL_LINES = 4


class RowFormat(str, Enum):
    """How rows are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    MARKDOWN = "md"


def sql(
    run: RunArgument = DEFAULT_RUN,
    query: Annotated[
        str | None, typer.Option("--command", "-c", metavar="QUERY", help="Run this.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Run the SQL of a file.")
    ] = None,
    format_: Annotated[RowFormat, typer.Option("--format", help="Of the rows.")] = RowFormat.TABLE,
    list_views: Annotated[
        bool, typer.Option("--list", help="List tables and views; needs no run.")
    ] = False,
    show: Annotated[
        str | None,
        typer.Option(metavar="VIEW", help="Columns, units and text of a view; needs no run."),
    ] = None,
    print_init: Annotated[
        bool, typer.Option("--print-init", help="Print the SQL that other tools need first.")
    ] = False,
) -> None:
    """Query a run, read-only. Without a query: a shell, or the SQL that stdin brings.

    Example: gapscope sql -c "FROM step_budget WHERE projection = 'device'"
    """
    if list_views:
        _print(("name", "kind", "purpose"), _relations(), format_)
        return
    if show is not None:
        output.data(_described(show))
        return
    if query is not None and file is not None:
        raise GapscopeError("usage", "`-c` and `-f` exclude each other", "`gapscope sql --help`")

    from gapscope.run import open_run

    with open_run(run) as opened:
        if print_init:
            output.data(_init(opened))
        elif query is not None:
            _run_script(opened, query, format_)
        elif file is not None:
            _run_script(opened, file.read_text(encoding="utf-8"), format_)
        elif not sys.stdin.isatty():
            _run_script(opened, sys.stdin.read(), format_)
        else:
            _shell(opened, format_)


def _relations() -> list[tuple[str, str, str]]:
    from gapscope.schema.results import RESULT_TABLES
    from gapscope.schema.tables import TABLES
    from gapscope.schema.views import all_views

    views = sorted(all_views(), key=lambda view: view.name)
    return [
        *((view.name, "view", view.purpose) for view in views),
        *(
            (f"v1.{table.name}", "table", table.doc)
            for table in (*TABLES.values(), *RESULT_TABLES.values())
        ),
    ]


def _described(name: str) -> str:
    from gapscope.schema.results import RESULT_TABLES
    from gapscope.schema.tables import TABLES
    from gapscope.schema.views import view_named

    table = {**TABLES, **RESULT_TABLES}.get(name.removeprefix("v1."))
    if table is not None:
        columns = table.columns
        head = (f"v1.{table.name} (table)", table.doc, f"grain: {table.grain}")
        body = ""
    else:
        view = view_named(name)
        columns = view.columns
        head = (f"{view.name} (view)", view.purpose, f"grain: {', '.join(view.grain)}")
        body = f"\n\n{view.query};"
    rows = [(column.name, column.type, column.unit, column.doc) for column in columns]
    header = ("column", "type", "unit", "meaning")
    limit = output.screen_width()
    lines = "\n".join(head if limit is None else (output.wrapped("", line) for line in head))
    return f"{lines}\n\n{output.table(header, rows, limit=limit)}{body}"


def _init(run: Run) -> str:
    location = str(run.path.resolve()).replace("'", "''")
    return (
        f"ATTACH '{location}/run.duckdb' AS run (READ_ONLY);\n"
        f"USE run;\nSET VARIABLE gapscope_run = '{location}';"
    )


def _run_script(run: Run, script: str, format_: RowFormat) -> None:
    import duckdb

    try:
        statements = [statement.query for statement in duckdb.extract_statements(script)]
    except duckdb.Error as error:
        raise GapscopeError("sql-error", str(error).split("\n\nLINE")[0]) from error
    if not statements:
        raise GapscopeError("usage", "the query is empty", "`gapscope sql --list`")
    for statement in statements:
        frame = run.sql(statement)
        _print(tuple(frame.columns), frame.iter_rows(), format_)


def _print(header: tuple[str, ...], rows: Any, format_: RowFormat) -> None:
    if format_ is RowFormat.CSV:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
    elif format_ is RowFormat.JSON:
        for line in _json_lines(header, rows):
            output.data(line)
    elif format_ is RowFormat.MARKDOWN:
        output.data("| " + " | ".join(header) + " |\n|" + " --- |" * len(header))
        for row in rows:
            cells = ("" if cell is None else plain(str(cell)) for cell in row)
            output.data("| " + " | ".join(_markdown_cell(cell) for cell in cells) + " |")
    else:
        # Only a screen cuts text: whatever reads a pipe gets everything.
        limit = output.screen_width()
        text = output.table(header, rows, limit=limit, cell_lines=_CELL_LINES)
        output.data(text)
        if text.partition("\n")[0].endswith(output.MORE):
            output.say("columns that do not fit are left out: `--format csv`, json or md has all")


def _markdown_cell(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("\\", "\\\\")
    return text.replace("|", "\\|").replace("\n", " ")


def _json_lines(header: tuple[str, ...], rows: Any) -> Iterator[str]:
    """An array with one row a line, so that it streams and still is one document."""
    is_first = True
    for row in rows:
        named = dict(zip(header, row, strict=True))
        yield ("[" if is_first else ",") + json.dumps(named, default=_plain, ensure_ascii=False)
        is_first = False
    yield "[]" if is_first else "]"


def _plain(value: object) -> object:
    """Numbers stay numbers (sums of BIGINT are HUGEINT, which arrives as Decimal)."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return str(value)


def _shell(run: Run, format_: RowFormat) -> None:
    duckdb = shutil.which("duckdb")
    database = str(run.path / "run.duckdb")
    if duckdb is not None:
        location = str(run.path.resolve()).replace("'", "''")
        run.close()
        start = f"SET VARIABLE gapscope_run = '{location}'"
        os.execv(duckdb, [duckdb, "-readonly", "-cmd", start, database])  # noqa: S606 -- becomes the shell
    output.say(f"{database}, read-only; statements end with `;`, leave with `.quit`")
    while True:
        try:
            statement = _read_statement()
        except EOFError:
            output.say("")
            return
        if statement in (".quit", ".exit"):
            return
        try:
            _run_script(run, statement, format_)
        except GapscopeError as error:
            output.fail(error)


def _read_statement() -> str:
    import readline  # noqa: F401 -- gives `input` history and line editing

    text = input(_PROMPT).strip()
    while text and not text.startswith(".") and not text.endswith(";"):
        text += "\n" + input("     ...> ").rstrip()
    return text
