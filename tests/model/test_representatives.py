"""Large runs: some ranks stand for all where every op costs time, and the run says which."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import numpy as np
import pytest

from gapscope.model import load
from gapscope.simulate import spec
from gapscope.simulate.run import write_run

RANKS = 12
EVERYONE = {0: [list(range(RANKS))]}


def starts(late: dict[int, int]) -> np.ndarray:
    """Starts [node, step, rank] of one collective in two steps: at 0 but for these ranks."""
    return np.array([[[late.get(rank, 0) for rank in range(RANKS)] for _ in range(2)]])


def test_a_run_within_bounds_is_explained_whole() -> None:
    chosen = load.representatives(RANKS, load.MOST_WALKED_OPS, EVERYONE, starts({}))
    assert chosen == tuple(range(RANKS))


def test_ranks_that_others_waited_for_come_first_then_the_one_that_waited_then_a_spread() -> None:
    late = dict.fromkeys(range(RANKS), 50) | {5: 1_000, 7: 10}
    chosen = load.representatives(RANKS, 12 * load.MOST_WALKED_OPS, EVERYONE, starts(late))
    assert len(chosen) == load.LEAST_EXPLAINED
    assert chosen == tuple(sorted(chosen))
    assert {5, 7, 0} <= set(chosen)


@pytest.fixture(scope="module")
def large_run(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Ten ranks of which the one before the last is late, analysed as if they were too many."""
    directory = tmp_path_factory.mktemp("large")
    source = directory / "spec.toml"
    text = spec.example().split("[[injection]]")[0].replace("ranks = 2 ", "ranks = 10 ")
    source.write_text(
        text + '[[injection]]\nclass = "R3"\nplace = "sleep"\nranks = [8]\namount_ms = 20.0\n',
        encoding="utf-8",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "MOST_WALKED_OPS", 100)
        patch.setattr(load, "LEAST_EXPLAINED", 3)
        run = write_run(source, directory / "large.run", workers=1).out
    with duckdb.connect(str(run / "run.duckdb"), read_only=True) as con:
        yield con


def test_pieces_are_of_some_ranks_bound_and_ladder_of_all(
    large_run: duckdb.DuckDBPyConnection,
) -> None:
    def ranks(table: str) -> list[int]:
        rows = large_run.execute(f"SELECT DISTINCT rank FROM v1.{table} ORDER BY 1").fetchall()
        return [row[0] for row in rows]

    assert len(ranks("step_gap")) == 3
    assert ranks("gap_piece") == ranks("step_gap")
    assert 8 in ranks("step_gap")
    assert ranks("step_bound") == ranks("what_if") == list(range(10))


def test_the_late_rank_is_named_by_those_that_are_explained(
    large_run: duckdb.DuckDBPyConnection,
) -> None:
    rows = large_run.execute(
        "SELECT rank, arg_max(culprit_rank, ns), sum(ns) FROM (SELECT rank, culprit_rank, "
        "sum(end_ns - start_ns) AS ns FROM v1.gap_piece WHERE gap_class = 'R3' "
        "GROUP BY rank, culprit_rank) GROUP BY rank"
    ).fetchall()
    waiting = {rank: culprit for rank, culprit, ns in rows if ns > 10e6}
    assert waiting
    assert set(waiting.values()) == {8}


def test_the_run_says_which_ranks_were_explained(large_run: duckdb.DuckDBPyConnection) -> None:
    said = large_run.execute(
        "SELECT status, measured, allowed, detail FROM v1.model_check "
        "WHERE check_name = 'explained_ranks'"
    ).fetchall()
    assert said[0][:3] == ("info", 3.0, 10.0)
    assert "8" in said[0][3]
