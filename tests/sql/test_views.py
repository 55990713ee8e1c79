"""Each view against its header, on empty input, and on the golden cases beside it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import duckdb
import pytest

from gapscope.schema.results import RESULT_TABLES
from gapscope.schema.tables import TABLES
from gapscope.schema.views import View, all_views, comment, install, parse_view

from .golden import (
    MANDATORY,
    RUN_TABLES,
    SQL_DIRECTORY,
    Case,
    CaseFile,
    accept,
    as_csv,
    create_input,
    expected,
    load,
    read_cases,
    result,
    same,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

VIEWS = all_views()
CASE_FILES = {view.name: read_cases(view) for view in VIEWS}
CASES = [case for file in CASE_FILES.values() for case in file.cases]
AUDITED = [(view, name) for view in VIEWS for name in view.audits]

of_view = pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.short_name)


@pytest.fixture(scope="module")
def empty_run() -> Iterator[duckdb.DuckDBPyConnection]:
    """Every view over canonical tables without a row, materialised where a run would."""
    con = _connect()
    con.execute("CREATE SCHEMA v1")
    for name in (*TABLES, *RESULT_TABLES, *RUN_TABLES):
        create_input(con, name)
    for view in VIEWS:
        if view.materialise == "no":
            install(con, view)
        else:
            con.execute(f"CREATE TABLE {view.name} AS {view.query}")
    yield con
    con.close()


@pytest.fixture(scope="module")
def all_tables() -> Iterator[duckdb.DuckDBPyConnection]:
    """Every name that a view may read, as a table: DuckDB looks through views, not through these."""
    con = _connect()
    con.execute("CREATE SCHEMA v1")
    for name in (*TABLES, *RESULT_TABLES, *RUN_TABLES, *(view.short_name for view in VIEWS)):
        create_input(con, name)
    yield con
    con.close()


def _connect() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


def _tables(con: duckdb.DuckDBPyConnection, sql: str) -> set[str]:
    # get_table_names() cannot bind an ASOF join; an ordinary one names the same tables.
    sql = re.sub(r"\bASOF\b", "", sql)
    return {
        re.sub(r" AS .*", "", name).replace('"', "")
        for name in con.get_table_names(sql, qualified=True)
    }


def test_each_file_holds_the_view_that_its_name_says() -> None:
    assert {view.file for view in VIEWS} == {path.name for path in SQL_DIRECTORY.glob("*.sql")}
    for view in VIEWS:
        assert view.file.split("_", 1)[1] == f"{view.short_name}.sql"


@of_view
def test_header_is_complete(view: View) -> None:
    assert view.materialise in ("rank", "run", "no")
    assert view.since == 1
    assert view.purpose.endswith(".")
    assert view.grain
    names = [column.name for column in view.columns]
    assert len(set(names)) == len(names)
    assert set(view.grain) <= set(names)
    for column in view.columns:
        assert column.type in ("BIGINT", "INTEGER", "DOUBLE", "VARCHAR", "BOOLEAN")
        assert column.doc.endswith("."), column
        assert (column.type == "BOOLEAN") == column.name.startswith("is_"), column
        if column.name.endswith("_ns") and column.name != "bytes_per_ns":
            assert (column.type, column.unit) == ("BIGINT", "ns"), column


@of_view
def test_describe_equals_the_declared_columns(
    view: View, empty_run: duckdb.DuckDBPyConnection
) -> None:
    described = empty_run.execute(f"DESCRIBE {view.name}").fetchall()
    assert [(row[0], row[1]) for row in described] == [(c.name, c.type) for c in view.columns]


@of_view
def test_depends_on_equals_the_tables_used(
    view: View, all_tables: duckdb.DuckDBPyConnection
) -> None:
    assert _tables(all_tables, view.query) == set(view.depends_on)


@of_view
def test_a_view_per_rank_uses_only_what_exists_per_rank(view: View) -> None:
    by_name = {other.name: other for other in VIEWS}
    if view.materialise == "rank":
        for name in view.depends_on:
            assert name != "v1.audit_result"
            assert name not in by_name or by_name[name].materialise != "run"


@of_view
def test_header_becomes_comments(view: View, empty_run: duckdb.DuckDBPyConnection) -> None:
    comment(empty_run, view, "VIEW" if view.materialise == "no" else "TABLE")
    stored = empty_run.execute(
        "SELECT column_name, comment FROM duckdb_columns() "
        "WHERE schema_name = 'v1' AND table_name = ?",
        [view.short_name],
    ).fetchall()
    assert {name for name, text in stored if text} == {c.name for c in view.columns}


@pytest.mark.parametrize(("view", "name"), AUDITED, ids=lambda value: getattr(value, "name", value))
def test_audit_holds_without_rows(
    view: View, name: str, empty_run: duckdb.DuckDBPyConnection
) -> None:
    assert empty_run.execute(view.audits[name]).fetchall() == []


@pytest.mark.parametrize("file", CASE_FILES.values(), ids=lambda file: file.view.short_name)
def test_every_edge_has_a_case_or_a_reason(file: CaseFile) -> None:
    named = {case.name for case in file.cases}
    assert named, "no case"
    for name in MANDATORY:
        assert (name in named) != (name in file.not_applicable), name
    for name, reason in file.not_applicable.items():
        assert name in MANDATORY
        assert len(reason) > 20, name
    for case in file.cases:
        assert case.doc.strip(), case.name


def _id(case: Case) -> str:
    return f"{case.view.short_name}-{case.name}"


@pytest.mark.parametrize("case", CASES, ids=_id)
def test_golden_case(case: Case, request: pytest.FixtureRequest) -> None:
    con = _connect()
    try:
        load(con, case)
        header, rows = result(con, case)
        wanted = expected(con, case, header)
        update = request.config.getoption("--update-golden", default=False)
        if not same(rows, wanted) and (update or os.environ.get("GAPSCOPE_UPDATE_GOLDEN")):
            accept(case, header, rows)
        elif not same(rows, wanted):
            got, want = as_csv(header, rows), as_csv(header, wanted)
            assert got == want, "\n".join([case.doc, "got:", *got])
            assert rows == wanted
        _assert_grain_is_unique(con, case.view)
        for name, sql in case.view.audits.items():
            if _runs_on(con, case, sql):
                assert con.execute(sql).fetchall() == [], name
    finally:
        con.close()


@pytest.mark.parametrize(("view", "name"), AUDITED, ids=lambda value: getattr(value, "name", value))
def test_audit_runs_on_some_case(view: View, name: str) -> None:
    tables = {table.removeprefix("v1.") for table in re.findall(r"v1\.\w+", view.audits[name])}
    tables -= {view.short_name}
    declared = {table.removeprefix("v1.") for table in view.depends_on}
    assert any(tables <= declared | set(case.inputs) for case in CASE_FILES[view.name].cases)


def _assert_grain_is_unique(con: duckdb.DuckDBPyConnection, view: View) -> None:
    keys = ", ".join(f'"{column}"' for column in view.grain)
    repeated = con.execute(
        f"SELECT {keys}, count(*) FROM {view.name} GROUP BY {keys} HAVING count(*) > 1"
    ).fetchall()
    assert repeated == [], f"grain {view.grain}"


def _runs_on(con: duckdb.DuckDBPyConnection, case: Case, sql: str) -> bool:
    # An audit may read a view that the audited one does not depend on: cases that give it run it.
    present = {row[0] for row in con.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    present |= {case.view.short_name}
    return {name.removeprefix("v1.") for name in re.findall(r"v1\.\w+", sql)} <= present


def test_a_view_file_without_a_header_is_refused() -> None:
    with pytest.raises(ValueError, match="no `CREATE OR REPLACE VIEW"):
        parse_view("x.sql", "SELECT 1;")
    with pytest.raises(ValueError, match="only comments"):
        parse_view("x.sql", "SELECT 1;\nCREATE OR REPLACE VIEW v1.x AS\nSELECT 1;")
