"""Captures of one host whose clocks were set wrong: the same gaps and the same bound, within the residual."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from statistics import mean

import pytest

import gapscope
from gapscope.ingest.pipeline import ingest

CAPTURES = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "h200" / "kineto"
SHIFTS_NS = (-3_000_000_000, 0, 40_000_000, 7_000_000_000)

pytestmark = pytest.mark.skipif(
    not CAPTURES.is_dir(), reason="the shared captures are not beside this checkout"
)

GAPS = "SELECT step_id, rank, r3_ns, t_lb_ns FROM step_gap ORDER BY step_id, rank"
CLOCKS = "SELECT offset_ns, residual_ns, method FROM rank_clock ORDER BY rank"
LAGGARDS = "SELECT step_number, laggard_rank, verdict FROM step_laggard ORDER BY step_number"
WITHHELD = "SELECT check_name, step_id FROM model_check WHERE withholds IS NOT NULL ORDER BY ALL"


def _shifted(name: str, directory: Path) -> list[Path]:
    """The captures with the clock of each rank set otherwise."""
    directory.mkdir()
    written = []
    for source, shift_ns in zip(sorted(CAPTURES.glob(f"{name}_rank*")), SHIFTS_NS, strict=False):
        text = gzip.decompress(source.read_bytes()).decode()
        changed, count = re.subn(
            r'("baseTimeNanoseconds": )(\d+)',
            lambda found, shift_ns=shift_ns: f"{found[1]}{int(found[2]) + shift_ns}",
            text,
        )
        assert count == 1
        target = directory / source.name
        target.write_bytes(gzip.compress(changed.encode(), 1))
        written.append(target)
    return written


def _rows(sources: list[Path], out: Path, *queries: str) -> list[list[tuple]]:
    ingest(sources, out, workers=1)
    with gapscope.open_run(out) as run:
        return [run.sql(query).rows() for query in queries]


@pytest.mark.parametrize("name", ["four", "p_four", "p_skew10000"])
def test_shifted_clocks_give_the_same_gaps(tmp_path: Path, name: str) -> None:
    queries = (GAPS, CLOCKS, LAGGARDS, WITHHELD)
    plain = _rows(sorted(CAPTURES.glob(f"{name}_rank*")), tmp_path / "plain.run", *queries)
    moved = _rows(_shifted(name, tmp_path / "moved"), tmp_path / "moved.run", *queries)
    assert {method for *_, method in plain[1]} == {"capture clock"}
    assert {method for *_, method in moved[1]} == {"matched ends"}
    offsets = [after - before for (before, *_), (after, *_) in zip(plain[1], moved[1], strict=True)]
    residual = max(residual for clocks in (plain[1], moved[1]) for _, residual, _ in clocks)
    assert max(offsets) - min(offsets) < residual
    assert len(plain[0]) == len(moved[0]) > 0
    r3, t_lb = ([[row[n] for row in run[0]] for run in (plain, moved)] for n in (2, 3))
    assert all(abs(a - b) < residual for a, b in zip(*t_lb, strict=True))
    # A wait just beyond the residual is R3, one just below it is not: single steps differ by some.
    assert abs(mean(r3[0]) - mean(r3[1])) < residual
    assert all(abs(a - b) < 3 * residual for a, b in zip(*r3, strict=True))
    # The same is named, and the same may be said.
    assert moved[2:] == plain[2:]
