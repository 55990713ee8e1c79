"""The SQL views: parse their headers, order them, install them, materialise the heavy ones."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from gapscope._resources import read_texts
from gapscope.errors import GapscopeError
from gapscope.schema.results import RESULT_TABLES
from gapscope.schema.tables import TABLES, Column

if TYPE_CHECKING:
    import duckdb

SQL_VERSION = "v1"

_CREATE = re.compile(r"^CREATE OR REPLACE VIEW (\S+) AS\s*$", re.MULTILINE)
_COLUMN = re.compile(r"(\S+)\s+(\S+)\s+(\S+)\s+(.*)")


@dataclass(frozen=True)
class View:
    """One view file: `query` is everything behind CREATE ... AS, `audits` must return no rows."""

    name: str
    file: str
    purpose: str
    grain: tuple[str, ...]
    depends_on: tuple[str, ...]
    materialise: str  # "rank": Parquet per rank at ingest; "run": native table; "no": plain view
    since: int
    columns: tuple[Column, ...]
    query: str
    audits: dict[str, str] = field(default_factory=dict)

    @property
    def short_name(self) -> str:
        """Name without the schema."""
        return self.name.split(".", 1)[1]


def parse_view(file: str, text: str) -> View:
    """Parse one view file; ValueError when the header breaks the format."""
    created = _CREATE.search(text)
    if created is None:
        raise ValueError(f"{file}: no `CREATE OR REPLACE VIEW name AS`")
    header: dict[str, str] = {}
    columns: list[Column] = []
    audits: dict[str, list[str]] = {}
    section = ""
    for line in text[: created.start()].splitlines():
        if not line.startswith("--"):
            raise ValueError(f"{file}: only comments may stand before CREATE: {line!r}")
        if line.startswith("--   "):
            body = line[5:]
            if section == "columns":
                parsed = _COLUMN.fullmatch(body.strip())
                if parsed is None:
                    raise ValueError(f"{file}: column line {body!r}")
                columns.append(Column(*parsed.groups()))
            elif section.startswith("audit "):
                audits[section[6:]].append(body)
            else:
                header[section] += " " + body.strip()
            continue
        key, _, value = line[3:].partition(":")
        section = key.strip()
        if section.startswith("audit "):
            audits[section[6:]] = []
        else:
            header[section] = value.strip()
    if header["view"] != created.group(1):
        raise ValueError(f"{file}: header says {header['view']}, SQL says {created.group(1)}")
    return View(
        name=header["view"],
        file=file,
        purpose=header["purpose"],
        grain=_list(header["grain"]),
        depends_on=_list(header["depends-on"]),
        materialise=header["materialise"],
        since=int(header["since"]),
        columns=tuple(columns),
        query=text[created.end() :].strip().rstrip(";"),
        audits={name: "\n".join(lines) for name, lines in audits.items()},
    )


@lru_cache(maxsize=1)
def all_views() -> tuple[View, ...]:
    """Every view of this version, each after those it depends on."""
    parsed = {}
    for file, text in read_texts("sql", SQL_VERSION, ".sql").items():
        view = parse_view(file, text)
        parsed[view.name] = view
    of_run = ("run_option", "audit_result", "ingest_note")
    base = {f"v1.{name}" for name in (*TABLES, *RESULT_TABLES, *of_run)}
    ordered: list[View] = []
    done: set[str] = set(base)

    def visit(view: View, path: tuple[str, ...]) -> None:
        if view.name in done:
            return
        if view.name in path:
            raise ValueError(f"views depend on each other: {' -> '.join((*path, view.name))}")
        for name in view.depends_on:
            if name not in base:
                if name not in parsed:
                    raise ValueError(f"{view.file}: depends on unknown {name}")
                visit(parsed[name], (*path, view.name))
        done.add(view.name)
        ordered.append(view)

    for view in parsed.values():
        visit(view, ())
    return tuple(ordered)


def view_named(name: str) -> View:
    """The view of that name, with or without `v1.`."""
    full = name if "." in name else f"{SQL_VERSION}.{name}"
    for view in all_views():
        if view.name == full:
            return view
    raise GapscopeError(
        "unknown-view", f"there is no view `{name}`", "list them: `gapscope sql RUN --list`"
    )


def install(con: duckdb.DuckDBPyConnection, view: View, query: str | None = None) -> None:
    """Create one view; `query` replaces its text where the rows are already materialised."""
    con.execute(f"CREATE OR REPLACE VIEW {view.name} AS {query or view.query}")


def comment(con: duckdb.DuckDBPyConnection, view: View, relation: str = "VIEW") -> None:
    """Store purpose, units and meanings in the catalog, where any DuckDB shell finds them."""
    grain = ", ".join(view.grain)
    con.execute(f"COMMENT ON {relation} {view.name} IS {_quote(f'{view.purpose} Grain: {grain}.')}")
    for column in view.columns:
        unit = "" if column.unit == "-" else f" [{column.unit}]"
        con.execute(f'COMMENT ON COLUMN {view.name}."{column.name}" IS {_quote(column.doc + unit)}')


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _list(text: str) -> tuple[str, ...]:
    return () if text.strip() in ("", "-") else tuple(part.strip() for part in text.split(","))
