"""The views of `sql/pair` against their headers and on real rows; golden cases beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from gapscope.pair import SIDES, Pair, pair_of, pair_views
from gapscope.schema.views import View, install
from tests.sql.golden import rows_of

from .pairs import run_of

VIEWS = pair_views()
DIRECTORY = Path(__file__).parents[2] / "sql" / "pair"
SIDED = tuple(view for view in VIEWS if view.materialise == "side")
PLAIN = tuple(view for view in VIEWS if view.materialise == "no")


def _cases() -> list[tuple[View, str, dict[str, Any]]]:
    found = []
    for view in PLAIN:
        path = DIRECTORY / view.file.replace(".sql", ".cases.yaml")
        content = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
        found += [(view, name, body) for name, body in content.items()]
    return found


@pytest.fixture(scope="module")
def both():
    """A pair that differs, with rows in every ledger."""
    with pair_of(run_of(), run_of(late=3, longer_by=7)) as pair:
        yield pair


def _empty() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(config={"threads": 1})
    con.execute("CREATE SCHEMA pair")
    con.execute("CREATE TABLE pair.shown (projection VARCHAR, rank BIGINT)")
    for view in SIDED:
        columns = ", ".join(f'"{column.name}" {column.type}' for column in view.columns)
        con.execute(f"CREATE TABLE {view.name} (side VARCHAR, {columns})")
    return con


def test_each_file_holds_the_view_that_its_name_says():
    assert {view.file for view in VIEWS} == {path.name for path in DIRECTORY.glob("*.sql")}
    for view in VIEWS:
        assert view.file.split("_", 1)[1] == f"{view.short_name}.sql"
        assert view.purpose.endswith(".")
        assert set(view.grain) <= {column.name for column in view.columns}


def test_every_plain_view_has_a_case():
    assert {view.name for view, _, _ in _cases()} == {view.name for view in PLAIN}


@pytest.mark.parametrize("view", PLAIN, ids=lambda view: view.short_name)
def test_columns_are_those_declared_also_without_rows(view: View):
    con = _empty()
    for one in PLAIN:
        install(con, one)
    described = con.execute(f"DESCRIBE {view.name}").fetchall()
    assert [(row[0], row[1]) for row in described] == [(c.name, c.type) for c in view.columns]
    if "verdict" not in {column.name for column in view.columns}:
        assert con.execute(f"FROM {view.name}").fetchall() == []
    con.close()


@pytest.mark.parametrize("view", SIDED, ids=lambda view: view.short_name)
def test_what_is_read_of_a_run_has_the_declared_columns(view: View):
    run = run_of()
    run.sql("SET VARIABLE gapscope_projection = 'device'")
    run.sql("SET VARIABLE gapscope_rank = 0")
    described = run.sql(f"DESCRIBE {view.query}").rows()
    assert [(row[0], row[1]) for row in described] == [(c.name, c.type) for c in view.columns]


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.short_name)
def test_no_two_rows_share_the_grain(both: Pair, view: View):
    keys = ", ".join([*(("side",) if view in SIDED else ()), *view.grain])
    query = f"SELECT {keys}, count(*) AS rows FROM {view.name} GROUP BY ALL HAVING count(*) > 1"
    assert both.rows(query) == []


def test_audits_hold(both: Pair):
    audits = [sql for view in VIEWS for sql in view.audits.values()]
    assert audits
    for sql in audits:
        assert both.rows(sql) == []


@pytest.mark.parametrize(
    ("view", "name", "body"),
    [pytest.param(*case, id=f"{case[0].short_name}-{case[1]}") for case in _cases()],
)
def test_golden_case(view: View, name: str, body: dict[str, Any]):
    con = duckdb.connect(config={"threads": 1})
    con.execute("CREATE SCHEMA pair")
    by_name = {one.name: one for one in VIEWS}
    for needed in view.depends_on:
        if needed == "pair.shown":
            columns = {"projection": "VARCHAR", "rank": "BIGINT"}
        else:
            columns = {column.name: column.type for column in by_name[needed].columns}
            if by_name[needed].materialise == "side":
                columns = {"side": "VARCHAR", **columns}
        listed = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
        con.execute(f"CREATE TABLE {needed} ({listed})")
        for row in rows_of((body.get("in") or {}).get(needed.split(".")[1], "rank\n")):
            fields = ", ".join(f'"{column}"' for column in row)
            marks = ", ".join(f"CAST(? AS {columns[column]})" for column in row)
            con.execute(f"INSERT INTO {needed} ({fields}) VALUES ({marks})", list(row.values()))
    install(con, view)
    wanted = rows_of(body["out"])
    header = [field.strip() for field in body["out"].strip().splitlines()[0].split(",")]
    types = {column.name: column.type for column in view.columns}
    chosen = ", ".join(f'"{column}"' for column in header)
    found = con.execute(
        f"SELECT {chosen} FROM ({body.get('query', 'FROM ' + view.name)})"
    ).fetchall()
    casts = ", ".join(f"CAST(? AS {types[column]})" for column in header)
    expected = [
        con.execute(f"SELECT {casts}", [row[column] for column in header]).fetchone()
        for row in wanted
    ]
    con.close()
    assert sorted(found, key=repr) == sorted(expected, key=repr), body["doc"]


def test_sides_are_two():
    assert SIDES == ("A", "B")
