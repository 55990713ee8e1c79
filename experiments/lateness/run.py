"""Simulate ranks that come late by a known time, and write down whom the survey and the model name.

One line a case: one step in which one rank slept. The lateness is the true one, of the simulator's
own times before any clock read them; the survey and the model see only the ranks' clocks.
"""

from __future__ import annotations

import argparse
import csv
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

from gapscope.simulate import run as simulation
from gapscope.simulate import truth as truths
from gapscope.simulate.spec import Spec, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "validation"))
import lean

STEPS = 10
FIELDS = (
    *("run", "step", "ranks", "one_host", "slept", "slept_ns", "late_ns", "held_ns"),
    *("residual_ns", "limit_ns", "named_late", "laggard", "verdict"),
    *("r3_of_slept_ns", "r3_of_others_ns"),
)
SURVEY = """
SELECT n.step_id, l.limit_ns, l.laggard_rank, l.verdict, l.held_ns
FROM v1.step_laggard AS l
INNER JOIN v1.step_number AS n ON l.step_number = n.step_number AND n.rank = 0
"""
LATE = """
SELECT step_id, arg_max(rank, late_ns) FILTER (WHERE late_ns > 0), max(residual_ns)
FROM v1.rank_lateness GROUP BY step_id
"""
CAUSES = """
SELECT step_id, culprit_rank, max(ns) FROM (
    SELECT step_id, rank, culprit_rank, sum(total_ns) AS ns
    FROM v1.gap_cause WHERE gap_class = 'R3' GROUP BY step_id, rank, culprit_rank
) GROUP BY step_id, culprit_rank
"""


def text(number: int) -> tuple[str, dict[int, tuple[int, int]]]:
    """A SPEC, and who sleeps in which step of it for how many ns."""
    draw = random.Random(number)  # noqa: S311 -- settings, not secrets
    ranks = draw.choice([2, 3, 4])
    spread_us = 10 ** draw.uniform(2.2, 3.3)
    lines = [
        f"ranks = {ranks}\nsteps = {STEPS}\nseed = {number}",
        f"[model]\nblocks = {draw.randint(2, 3)}\nlayers_per_block = 1",
        "[compute]\nforward_ms = 1.5\nbackward_ms = 3.0\nhead_ms = 1.0\nloss_backward_ms = 1.0",
        "head_backward_ms = 1.0\n[host]\nhook_us = 50.0\ngap_us = 20.0",
        f"[transfer]\nend_spread_us = {spread_us:.0f}",
        "block_gather_ms = 2.5\nblock_scatter_ms = 2.5",
        "root_gather_ms = 3.0\nroot_scatter_ms = 3.0",
    ]
    if draw.random() < 0.5:
        lines.append("[clock]\nranks_per_host = 1\noffset_us = 2_000.0\ndrift_ppb = 500.0")
        lines.append(f"declared = {draw.choice(['true', 'false'])}")
    slept = {}
    for step in range(1, STEPS):
        rank = draw.randrange(ranks)
        amount_ms = 0.6 * spread_us / 1e3 * draw.uniform(0.2, 10)
        slept[step] = (rank, round(amount_ms * 1e6))
        lines.append(
            f'[[injection]]\nclass = "R3"\nplace = "sleep"\nranks = [{rank}]\n'
            f"steps = [{step}]\namount_ms = {amount_ms:.4f}"
        )
    return "\n".join(lines), slept


def lateness(observed: truths.Training, arrived: np.ndarray, rank: int) -> int:
    """Most that `rank` came last by at a collective of the step, true ns; 0 where it never did.

    `arrived` holds the starts of all ops of that step, op by rank.
    """
    collective = [number for number, op in enumerate(observed.program.ops) if op.collective]
    arrived = arrived[collective]
    ordered = np.sort(arrived, axis=1)
    is_last = arrived.argmax(axis=1) == rank
    by = np.where(is_last, ordered[:, -1] - ordered[:, -2], 0)
    return int(by.max())


def cases(number: int, directory: Path) -> Iterator[dict[str, Any]]:
    """The run of a number, and its cases."""
    said, slept = text(number)
    kept: list[truths.Truth] = []
    starts: list[np.ndarray] = []

    def simulate(spec: Spec, on_step: Callable[[], None], take: truths.Take) -> truths.Truth:
        # What each sleep cost is not asked, so that no twins are simulated.
        def keep(step: truths.Step) -> None:
            starts.append(np.array(step.timing.start))
            take(step)

        observed = truths.train(spec, spec.injection, take=keep, on_step=on_step)
        length = observed.window_end - observed.window_start
        kept.append(
            truths.Truth(observed, length, observed.compute, [length] * len(spec.injection))
        )
        return kept[0]

    simulation.simulate = simulate
    source = directory / "spec.toml"
    source.write_text(said)
    done = simulation.write_run(source, directory / "sim.run", force=True, workers=1)
    with duckdb.connect(str(done.out / "run.duckdb"), read_only=True) as con:
        survey = {row[0]: row[1:] for row in con.execute(SURVEY).fetchall()}
        late = {row[0]: row[1:] for row in con.execute(LATE).fetchall()}
        causes: dict[int, dict[int, int]] = {}
        for step, culprit, ns in con.execute(CAUSES).fetchall():
            causes.setdefault(step, {})[culprit] = ns
    spec = parse(said)
    for step, (rank, slept_ns) in slept.items():
        if step not in survey:
            continue
        limit_ns, laggard, verdict, held_ns = survey[step]
        r3 = causes.get(step, {})
        yield {
            "run": number,
            "step": step,
            "ranks": spec.ranks,
            "one_host": spec.clock.ranks_per_host > 1,
            "slept": rank,
            "slept_ns": slept_ns,
            "late_ns": lateness(kept[0].observed, starts[step], rank),
            "held_ns": held_ns,
            "residual_ns": late[step][1],
            "limit_ns": limit_ns,
            "named_late": late[step][0],
            "laggard": laggard,
            "verdict": verdict,
            "r3_of_slept_ns": r3.get(rank, 0),
            "r3_of_others_ns": max((ns for who, ns in r3.items() if who != rank), default=0),
        }


def main() -> None:
    """Write the cases of all runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="CSV to write")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    options = parser.parse_args()
    lean.install(("step_laggard", "gap_cause"))
    directory = Path(tempfile.mkdtemp(prefix="gapscope-lateness-"))
    try:
        with options.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            for number in range(options.first, options.first + options.runs):
                writer.writerows(cases(number, directory))
                file.flush()
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
