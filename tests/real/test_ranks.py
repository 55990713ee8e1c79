"""The survey of ranks on captures of a known fault: who is named, and who must not be."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import gapscope
from gapscope.ingest.pipeline import ingest

if TYPE_CHECKING:
    from collections.abc import Callable

CAPTURES = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "h200" / "kineto"

pytestmark = pytest.mark.skipif(
    not CAPTURES.is_dir(), reason="the shared captures are not beside this checkout"
)

LAGGARDS = "SELECT laggard_rank, verdict FROM v1.step_laggard ORDER BY step_number"


def _rows(sources: list[Path], out: Path, *queries: str) -> list[list[tuple]]:
    ingest(sources, out, workers=1)
    with gapscope.open_run(out) as run:
        return [run.sql(query).rows() for query in queries]


def _captures(name: str) -> list[Path]:
    return sorted(CAPTURES.glob(f"{name}_rank*.json.gz"))


def _changed(source: Path, target: Path, change: Callable[[str], str]) -> Path:
    text = gzip.decompress(source.read_bytes()).decode()
    changed = change(text)
    assert changed != text
    target.write_bytes(gzip.compress(changed.encode(), 1))
    return target


@pytest.mark.parametrize("name", ["p_skew10000", "skew3000"])
def test_the_laggard_is_named_in_every_step(tmp_path: Path, name: str) -> None:
    """Rank 1 slept before each step; three steps are too few to call that repeated, and it says so."""
    laggards, parts = _rows(
        _captures(name),
        tmp_path / "run",
        LAGGARDS,
        "SELECT top_rank, top_count, needed_steps, verdict FROM v1.part_straggler",
    )
    assert laggards == [(1, "laggard")] * 3
    assert parts == [(1, 3, 6, "not resolved")]


@pytest.mark.parametrize("name", ["p_base", "q8_base", "g2_base", "ddp"])
def test_a_clean_capture_names_nobody(tmp_path: Path, name: str) -> None:
    laggards, parts = _rows(
        _captures(name), tmp_path / "run", LAGGARDS, "SELECT verdict FROM v1.part_straggler"
    )
    assert [rank for rank, _ in laggards] == [None] * len(laggards)
    assert parts == [("none",)]


@pytest.mark.parametrize("name", ["four", "p_four"])
def test_four_ranks_match_every_collective(tmp_path: Path, name: str) -> None:
    matched, clocks, parts, bandwidth = _rows(
        _captures(name),
        tmp_path / "run",
        "SELECT count(*), count(*) FILTER (WHERE is_matched) FROM v1.collective_match "
        "WHERE step_id IS NOT NULL",
        "SELECT count(residual_p95_ns) FROM v1.rank_clock",
        "SELECT rank_count, verdict FROM v1.part_straggler",
        "SELECT group_size, resolved_count = instance_count, bus_gb_s < algorithm_gb_s "
        "FROM v1.collective_bandwidth WHERE bytes > 20_000_000",
    )
    assert matched[0][0] > 0
    assert matched[0][0] == matched[0][1]
    assert clocks == [(4,)]
    assert parts == [(4, "none")]
    assert set(bandwidth) == {(4, True, True)}


def test_two_copies_of_one_rank_name_nobody(tmp_path: Path) -> None:
    first = _captures("p_base")[0]
    copy = _changed(
        first,
        tmp_path / "copy.json.gz",
        lambda text: re.sub(r'("distributedInfo": \{[^{}]*?"rank": )0', r"\g<1>1", text, count=1),
    )
    laggards, skews = _rows(
        [first, copy], tmp_path / "run", LAGGARDS, "SELECT DISTINCT skew FROM v1.window_skew"
    )
    assert laggards == [(None, "none")] * 3
    assert skews == [("none",)]


@pytest.mark.parametrize("shift_ns", [1_000_000, 5_000_000])
def test_a_shifted_clock_is_aligned_and_not_blamed(tmp_path: Path, shift_ns: int) -> None:
    first, second = _captures("p_base")
    shifted = _changed(
        second,
        tmp_path / "shifted_rank1.json.gz",
        lambda text: re.sub(
            r'("baseTimeNanoseconds": )(\d+)', lambda m: f"{m[1]}{int(m[2]) + shift_ns}", text
        ),
    )
    laggards, skews = _rows(
        [first, shifted], tmp_path / "run", LAGGARDS, "SELECT DISTINCT skew FROM v1.window_skew"
    )
    assert [rank for rank, _ in laggards] == [None] * 3
    assert skews == [("none",)]
