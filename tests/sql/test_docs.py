"""`sql/README.md` is what the schema says, and each of its examples runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pytest

from gapscope import _docs
from gapscope.schema.results import RESULT_TABLES
from gapscope.schema.tables import TABLES
from gapscope.schema.views import all_views

from .golden import RUN_TABLES, create_input

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES = [*TABLES, *RESULT_TABLES, *RUN_TABLES, *(view.short_name for view in all_views())]


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    con = duckdb.connect(config={"threads": 1})
    con.execute("CREATE SCHEMA v1")
    for name in NAMES:
        create_input(con, name)
    con.execute("SET schema = 'v1'")
    yield con
    con.close()


def test_readme_is_current() -> None:
    assert _docs.README.read_text(encoding="utf-8") == _docs.render(), (
        "run: python -m gapscope._docs"
    )


def test_every_name_has_an_example_and_no_other() -> None:
    assert sorted(_docs.EXAMPLES) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_example_runs(name: str, con: duckdb.DuckDBPyConnection) -> None:
    assert name in _docs.EXAMPLES[name]
    con.execute(_docs.EXAMPLES[name]).fetchall()


def test_check_tells_a_stale_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_docs, "README", tmp_path / "README.md")
    assert _docs.main(["--check"]) == 1
    assert "hint: write it" in capsys.readouterr().err
    assert _docs.main([]) == 0
    assert _docs.main(["--check"]) == 0
    assert _docs.main(["--nonsense"]) == 2
