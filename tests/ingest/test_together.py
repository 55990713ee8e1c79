"""Small ranks are derived together: each gets what it would have got alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from gapscope.errors import GapscopeError
from gapscope.schema import derive
from gapscope.schema.tables import TABLES
from gapscope.simulate.run import write_run

RANKS = (0, 1, 2)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three ranks, of which the last ran nothing at all."""
    directory = tmp_path_factory.mktemp("together")
    source = directory / "spec.toml"
    source.write_text("ranks = 2\nsteps = 2\n[model]\nblocks = 1\nlayers_per_block = 1\n")
    out = write_run(source, directory / "few.run", workers=1).out
    for table in TABLES.values():
        target = out / "data" / table.name / "rank=2"
        target.mkdir()
        names = ", ".join(f'"{column.name}"' for column in table.columns)
        rows = f"SELECT {names} FROM '{out}/data/{table.name}/rank=0/data.parquet' LIMIT 0"
        duckdb.sql(f"COPY ({rows}) TO '{target}/data.parquet'")
    return out


def derived(run: Path, target: Path, ranks: tuple[int, ...]) -> list[derive.AuditResult]:
    places = {rank: target / str(rank) for rank in ranks}
    for place in places.values():
        place.mkdir(parents=True, exist_ok=True)
    return derive.derive_ranks(run, places, {}, 1, None)


def rows(file: Path) -> tuple[list, list]:
    relation = duckdb.read_parquet(str(file))
    return relation.types, relation.order("ALL").fetchall()


def test_together_as_alone(run: Path, tmp_path: Path):
    together = derived(run, tmp_path / "together", RANKS)
    alone = [one for rank in RANKS for one in derived(run, tmp_path / "alone", (rank,))]
    assert sorted(together) == sorted(alone)
    files = sorted(one.relative_to(tmp_path / "alone") for one in (tmp_path / "alone").rglob("*.*"))
    assert len(files) == len(RANKS) * len({file.name for file in files})
    filled = 0
    for file in files:
        assert rows(tmp_path / "together" / file) == rows(tmp_path / "alone" / file), file
        filled += bool(rows(tmp_path / "alone" / file)[1])
    assert filled > 2 * len(files) // 4
    left = [one for one in (tmp_path / "together").rglob("*") if one.suffix != ".parquet"]
    assert sorted(one.name for one in left) == ["0", "1", "2"]


@pytest.fixture
def odd_audits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two audits that find something on one rank; the second does not say on which."""
    views = list(derive.all_views())
    number, view = next((n, one) for n, one in enumerate(views) if one.audits)
    found = "SELECT rank FROM v1.gpu_op WHERE rank = 1 LIMIT 3"
    audits = {"says_rank": found, "says_none": f"SELECT 1 AS one FROM ({found})"}
    views[number] = replace(view, audits=audits)
    monkeypatch.setattr(derive, "all_views", lambda: tuple(views))


@pytest.mark.usefixtures("odd_audits")
def test_what_an_audit_finds_is_told_of_its_rank(run: Path, tmp_path: Path):
    results = derived(run, tmp_path, RANKS)
    told = {(audit, rank): failed for rank, audit, _, failed in results if audit.startswith("says")}
    assert told == {
        (audit, rank): 3 if rank == 1 else 0
        for audit in ("says_rank", "says_none")
        for rank in RANKS
    }


def test_an_impossible_rank_is_named(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real = derive.install

    def fails(con: duckdb.DuckDBPyConnection, view: derive.View, query: str | None = None) -> None:
        if con.execute("SELECT count(*) FROM v1.gpu_op WHERE rank = 1").fetchone() != (0,):
            raise duckdb.OutOfRangeException("overflow")
        real(con, view, query)

    monkeypatch.setattr(derive, "install", fails)
    with pytest.raises(GapscopeError, match="rank 1: times or sizes"):
        derived(run, tmp_path, RANKS)
