"""Golden cases beside the views: read them, run one, write an accepted `out` back."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from gapscope.schema import catalog
from gapscope.schema.results import RESULT_TABLES
from gapscope.schema.tables import TABLES
from gapscope.schema.views import SQL_VERSION, View, all_views

if TYPE_CHECKING:
    import duckdb

SQL_DIRECTORY = Path(__file__).parents[2] / "sql" / SQL_VERSION

# Edges that every view is asked about: a case of that name, or a reason why there is none.
MANDATORY = ("empty", "one_rank", "missing_rank", "open_interval", "boundary_crossing")

# Plain views that cases of other views build on are installed over the tables of the case.
PLAIN = ("op_window",)

# Tables of the run that are no canonical tables of a rank.
RUN_TABLES = {
    "run_option": catalog.RUN_OPTION,
    "audit_result": catalog._AUDIT_RESULT,
    "ingest_note": catalog.INGEST_NOTE,
}


@dataclass(frozen=True)
class Case:
    """One case; `query` reads the view where comparing all its rows would say too little."""

    view: View
    name: str
    doc: str
    inputs: dict[str, str]
    out: str
    query: str


@dataclass(frozen=True)
class CaseFile:
    """The cases of one view and the reasons for those mandatory ones that it lacks."""

    view: View
    path: Path
    cases: tuple[Case, ...]
    not_applicable: dict[str, str]


def case_path(view: View) -> Path:
    return SQL_DIRECTORY / view.file.replace(".sql", ".cases.yaml")


def read_cases(view: View) -> CaseFile:
    path = case_path(view)
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    reasons = content.pop("not_applicable", None) or {}
    cases = tuple(
        Case(
            view,
            name,
            body["doc"],
            body.get("in") or {},
            body["out"],
            body.get("query", f"FROM {view.name}"),
        )
        for name, body in content.items()
    )
    return CaseFile(view, path, cases, reasons)


def rows_of(text: str) -> list[dict[str, str | None]]:
    """CSV with aligned columns; an empty field is NULL, and so is a column left out."""
    lines = [line.strip() for line in text.strip().splitlines()]
    table = list(csv.reader(io.StringIO("\n".join(lines)), skipinitialspace=True))
    header = [field.strip() for field in table[0]]
    rows = []
    for line in table[1:]:
        if len(line) != len(header):
            raise ValueError(f"{len(header)} columns, but {len(line)} fields: {line}")
        values = [field.strip() or None for field in line]
        rows.append(dict(zip(header, values, strict=True)))
    return rows


def create_input(con: duckdb.DuckDBPyConnection, name: str) -> dict[str, str]:
    """Create one empty input table: canonical, of the run, a result, or in place of another view."""
    if name in RUN_TABLES:
        con.execute(RUN_TABLES[name])
        described = con.execute(f"DESCRIBE v1.{name}").fetchall()
        return {row[0]: row[1] for row in described}
    if name in TABLES:
        columns = {"rank": "BIGINT", **{c.name: c.type for c in TABLES[name].columns}}
    elif name in RESULT_TABLES:
        columns = {c.name: c.type for c in RESULT_TABLES[name].columns}
    else:
        view = next(v for v in all_views() if v.short_name == name)
        columns = {c.name: c.type for c in view.columns}
    text = ", ".join(f'"{column}" {type_}' for column, type_ in columns.items())
    con.execute(f'CREATE TABLE v1."{name}" ({text})')
    return columns


def load(con: duckdb.DuckDBPyConnection, case: Case) -> None:
    """The tables that the view declares, and those that only an audit reads, then the view."""
    con.execute("CREATE SCHEMA v1")
    by_name = {view.name: view for view in all_views()}
    needed: list[str] = []

    def need(view: View) -> None:
        for name in view.depends_on:
            other = by_name.get(name)
            short = name.split(".", 1)[1]
            # A plain view over the case's tables need not be spelled out: it is there itself.
            if other is not None and other.short_name in PLAIN and short not in case.inputs:
                need(other)
            needed.append(short)

    need(case.view)
    for name in {**dict.fromkeys(needed), **dict.fromkeys(case.inputs)}:
        source = by_name.get(f"{SQL_VERSION}.{name}")
        is_itself = source is not None and (not source.depends_on or name in PLAIN)
        if is_itself and name not in case.inputs:
            # Constants, such as the rules: the view itself.
            con.execute(f"CREATE VIEW {source.name} AS {source.query}")
            continue
        types = create_input(con, name)
        if case.inputs.get(name, "").lstrip().startswith("SELECT"):
            # Rows that follow a rule read better as a query.
            con.execute(f'INSERT INTO v1."{name}" BY NAME {case.inputs[name]}')
            continue
        for row in rows_of(case.inputs[name]) if name in case.inputs else []:
            fields = ", ".join(f'"{column}"' for column in row)
            marks = ", ".join(f"CAST(? AS {types[column]})" for column in row)
            con.execute(f'INSERT INTO v1."{name}" ({fields}) VALUES ({marks})', list(row.values()))
    con.execute(f"CREATE VIEW {case.view.name} AS {case.view.query}")


def result(con: duckdb.DuckDBPyConnection, case: Case) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The columns that the case's `out` names, in its order, and their rows."""
    header = [field.strip() for field in case.out.strip().splitlines()[0].split(",")]
    columns = ", ".join(f'"{column}"' for column in header)
    rows = con.execute(f"SELECT {columns} FROM ({case.query})").fetchall()
    return header, sorted(rows, key=_sort_key)


def expected(
    con: duckdb.DuckDBPyConnection, case: Case, header: list[str]
) -> list[tuple[Any, ...]]:
    """The rows of `out`, cast to the types of the result."""
    columns = ", ".join(f'"{column}"' for column in header)
    described = con.execute(f"DESCRIBE SELECT {columns} FROM ({case.query})").fetchall()
    casts = ", ".join(f"CAST(? AS {row[1]})" for row in described)
    rows = [
        con.execute(f"SELECT {casts}", list(row.values())).fetchone() for row in rows_of(case.out)
    ]
    return sorted(rows, key=_sort_key)


def same(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]]) -> bool:
    """Equal rows; floating-point shares to nine digits."""
    return len(left) == len(right) and all(
        a == b
        or (isinstance(a, float) and isinstance(b, float) and math.isclose(a, b, rel_tol=1e-9))
        for row, other in zip(left, right, strict=True)
        for a, b in zip(row, other, strict=True)
    )


def as_csv(header: list[str], rows: list[tuple[Any, ...]]) -> list[str]:
    """Aligned CSV lines, as they stand in a cases file."""
    lines = [header, *[[_field(value) for value in row] for row in rows]]
    widths = [max(len(line[i]) for line in lines) + 2 for i in range(len(header))]
    padded = [
        [f"{field}, ".ljust(widths[i]) for i, field in enumerate(line[:-1])] + line[-1:]
        for line in lines
    ]
    return ["".join(line).rstrip() for line in padded]


def accept(case: Case, header: list[str], rows: list[tuple[Any, ...]]) -> None:
    """Rewrite the `out` block of one case in its file; everything else stays as it is."""
    path = case_path(case.view)
    lines = path.read_text(encoding="utf-8").splitlines()
    start = lines.index(f"{case.name}:")
    out = next(i for i in range(start, len(lines)) if re.fullmatch(r"  out: \|", lines[i]))
    end = out + 1
    while end < len(lines) and lines[end].startswith("    "):
        end += 1
    lines[out + 1 : end] = ["    " + line for line in as_csv(header, rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if re.search(r'[,"]', text) else text


def _sort_key(row: tuple[Any, ...]) -> tuple[tuple[bool, Any], ...]:
    return tuple((value is not None, "" if value is None else value) for value in row)
