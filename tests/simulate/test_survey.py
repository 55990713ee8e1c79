"""Who holds up a simulated run is known: a straggler, one by turns, nobody, or below the residual."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gapscope.report import survey
from gapscope.simulate.spec import parse
from gapscope.simulate.truth import train

from .test_run import rows, write

SMALL = """
ranks = 4
steps = 6
[model]
blocks = 2
layers_per_block = 1
"""
VERDICT = "SELECT verdict, top_rank, top_count, laggard_steps FROM v1.part_straggler"
LAGGARDS = "SELECT laggard_rank FROM v1.step_laggard ORDER BY step_number"


def _sleep(rank: int, amount_ms: float, steps: str = "[]") -> str:
    return (
        f'[[injection]]\nclass = "R3"\nplace = "sleep"\nranks = [{rank}]\nsteps = {steps}\n'
        f"amount_ms = {amount_ms}\n"
    )


def test_a_repeated_straggler(tmp_path: Path) -> None:
    run = write(tmp_path, SMALL + _sleep(2, 10.0))
    assert rows(run, VERDICT) == [("repeated", 2, 6, 6)]
    assert rows(run, LAGGARDS) == [(2,)] * 6
    # Nothing of it shows in the length of its own step, and it is no median rank by habit.
    assert rows(run, "SELECT rank FROM v1.representative_rank WHERE role = 'straggler'") == [(2,)]
    held = rows(run, "SELECT held_ns FROM v1.step_laggard")
    assert all(8_000_000 < one < 12_000_000 for (one,) in held)


@pytest.mark.parametrize(
    ("laggards", "top", "said"),
    [
        (1, 1, "of 6 steps 1 has a rank that holds up the others: rank 2, by 4.00 ms, which"),
        (3, 3, "of 6 steps 3 have a rank that holds up the others, each time rank 2, by 4.00 ms a"),
        (3, 2, "of 6 steps 3 have a rank that holds up the others, most often rank 2 in 2, by"),
    ],
)
def test_words_count_the_steps_with_a_laggard(laggards: int, top: int, said: str) -> None:
    part = {
        "verdict": "not resolved", "step_count": 6, "laggard_steps": laggards, "top_rank": 2,
        "top_count": top, "top_held_ns": 4_000_000, "p_value": 0.5, "needed_steps": 6,
    }  # fmt: skip
    assert said in survey.straggler(part)


def test_a_straggler_by_turns_is_none(tmp_path: Path) -> None:
    turns = "".join(_sleep(step % 4, 10.0, f"[{step}]") for step in range(6))
    run = write(tmp_path, SMALL + turns)
    assert rows(run, LAGGARDS) == [(step % 4,) for step in range(6)]
    assert rows(run, VERDICT) == [("rotating", 0, 2, 6)]


@pytest.mark.parametrize(("residuals", "named"), [(1, 0), (10, 6)])
def test_below_the_residual_nobody_is_named(tmp_path: Path, residuals: int, named: int) -> None:
    """Ends that spread over 2.5 ms leave a residual of about 1.6 ms."""
    spread = "[transfer]\nend_spread_us = 2_500.0\n"
    run = write(tmp_path, SMALL + spread + _sleep(2, residuals * 1.6))
    assert 1_000_000 < rows(run, "SELECT max(residual_ns) FROM v1.rank_clock")[0][0] < 2_500_000
    assert [rank for (rank,) in rows(run, LAGGARDS)] == [2 if named else None] * 6
    assert rows(run, "SELECT laggard_steps FROM v1.part_straggler") == [(named,)]


def test_clocks_apart_by_a_millisecond_blame_nobody(tmp_path: Path) -> None:
    clocks = "[clock]\noffset_us = 1_000.0\ndeclared = false\n"
    run = write(tmp_path, SMALL + clocks)
    assert rows(run, "SELECT DISTINCT method FROM v1.rank_clock") == [("matched ends",)]
    assert rows(run, VERDICT) == [("none", None, None, 0)]


def test_who_is_late_by_over_three_residuals_is_named_and_nobody_below(tmp_path: Path) -> None:
    """By true lateness: of a sleep, what a rank would have waited for the others is none."""
    spread = "[transfer]\nend_spread_us = 2_500.0\n"
    sleeps = "".join(
        _sleep(step % 4, ms, f"[{step}]") for step, ms in enumerate((2, 4, 5, 8, 12), 1)
    )
    text = SMALL + spread + sleeps
    run = write(tmp_path, text)
    spec = parse(text)
    steps: list[Any] = []
    observed = train(spec, spec.injection, take=steps.append)
    collective = [number for number, op in enumerate(observed.program.ops) if op.collective]
    ((residual,),) = rows(run, "SELECT max(residual_ns) FROM v1.rank_clock")
    named = dict(
        rows(
            run,
            "SELECT step_id, max(rank) FILTER (WHERE late_ns > 0) FROM v1.rank_lateness GROUP BY 1",
        )
    )
    said = []
    for step in range(1, 6):
        arrived = np.sort(steps[step].timing.start[collective], axis=1)
        residuals = float((arrived[:, -1] - arrived[:, -2]).max()) / residual
        assert abs(residuals - 3) > 0.1, "too close to tell: choose other sleeps"
        assert named[step] == (step % 4 if residuals > 3 else None)
        said.append(residuals > 3)
    assert set(said) == {True, False}
