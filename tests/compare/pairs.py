"""Pairs of runs made by hand, small enough to know each of their numbers."""

from __future__ import annotations

from functools import cache
from typing import Any

from gapscope.compare.build import build
from gapscope.compare.document import Comparison
from gapscope.pair import pair_of
from gapscope.run import Run
from tests.report.tiny import STEP, US, Maker, modelled

__all__ = ["STEP", "US", "Maker"]


def made(*, ranks: int = 2, steps: int = 5, late: int = 0, longer_by: int = 0) -> Maker:
    """Ranks of equal steps of 100 us, of which the first lacks 2 us.

    `late`: so many us of the first gemm are launch-starved instead. `longer_by`: the second gemm,
    and with it the step, is longer by so many us.
    """
    run = Maker()
    for rank in range(ranks):
        run.rank(rank, world_size=ranks)
        for step in range(steps):
            run.step(rank, step, label=f"step {step}", late=late * US)
    return longer(run, longer_by * US, range(ranks)) if longer_by else run


def longer(run: Maker, amount: int, ranks: Any) -> Maker:
    """The second gemm of every step ends later, and everything behind it begins later."""
    for rank in ranks:
        for table in ("gpu_op", "api_call", "range"):
            run.con.execute(
                f"UPDATE v1.{table} SET start_ns = start_ns + {amount} * (start_ns // {STEP}), "
                f"end_ns = end_ns + {amount} * (start_ns // {STEP}) WHERE rank = {rank}"
            )
        run.con.execute(
            f"UPDATE v1.gpu_op SET end_ns = end_ns + {amount} WHERE rank = {rank} AND op_id % 3 = 2"
        )
        run.con.execute(f"UPDATE v1.range SET end_ns = end_ns + {amount} WHERE rank = {rank}")
    return run


@cache
def run_of(**values: int) -> Run:
    """A run of `made`; making its views takes a second."""
    return made(**values).run()


@cache
def model(*, is_provisional: bool = False) -> Run:
    """A run with what a dependency model would have left."""
    return modelled(is_provisional=is_provisional).run()


def compare(a: Run, b: Run, rank: int | None = None) -> Comparison:
    with pair_of(a, b, rank=rank) as both:
        return build(both, "a.run", "b.run")


def compare_makers(a: Maker, b: Maker) -> Comparison:
    return compare(a.run(), b.run())


def verdicts(document: Comparison) -> dict[str, str]:
    """What is not alike, and what that means."""
    return {check.item: check.verdict for check in document.checks if check.verdict != "same"}


def ledger(document: Comparison, name: str) -> Any:
    return next(item for item in document.ledgers if item.id == name)


def part(document: Comparison, name: str, label: str) -> Any:
    return next(line for line in ledger(document, name).lines if line.label == label)
