"""Whom the survey and the model named, by how late the rank truly was in units of the residual."""

from __future__ import annotations

import argparse
import csv
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

EDGES = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.25, 3.5, 4.0, 5.0, 7.0, 99.0)


class Case(NamedTuple):
    """One step in which a rank slept; times in clock residuals."""

    late: float
    slept: float
    is_bound_by_residual: bool
    late_named: str
    laggard: str
    r3: str


def case(row: dict[str, str]) -> Case:
    """A line of the CSV: `right`, `wrong` or `nobody` by what said it."""
    residual = int(row["residual_ns"])

    def judged(named: str) -> str:
        return "nobody" if not named else "right" if named == row["slept"] else "wrong"

    own, others = int(row["r3_of_slept_ns"]), int(row["r3_of_others_ns"])
    return Case(
        int(row["late_ns"]) / residual,
        int(row["slept_ns"]) / residual,
        int(row["limit_ns"]) <= 3 * residual,
        judged(row["named_late"]),
        judged(row["laggard"]),
        "right" if own > others else "wrong" if others else "nobody",
    )


def main() -> None:
    """Print the tables of the README."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path, help="CSV of run.py")
    with parser.parse_args().cases.open(newline="") as file:
        found = [case(row) for row in csv.DictReader(file)]
    print("| late, residuals | cases | late_ns | R3 | cases, 3 residuals > 2 % | laggard |")
    print("| --- | --- | --- | --- | --- | --- |")
    for low, high in (*pairwise(EDGES), (3.0, EDGES[-1])):
        here = [one for one in found if low <= one.late < high]
        bound = [one for one in here if one.is_bound_by_residual]
        print(
            f"| {low:g} to {high:g} | {len(here)} | {_said([one.late_named for one in here])} | "
            f"{_said([one.r3 for one in here])} | {len(bound)} | "
            f"{_said([one.laggard for one in bound])} |"
        )
    print("\n| residuals | by time slept | by true lateness |\n| --- | --- | --- |")
    bound = [one for one in found if one.is_bound_by_residual]
    for low, high in pairwise((2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 99.0)):
        slept = [one.laggard for one in bound if low <= one.slept < high]
        late = [one.laggard for one in bound if low <= one.late < high]
        print(
            f"| {low:g} to {high:g} | {slept.count('right')} of {len(slept)} | "
            f"{late.count('right')} of {len(late)} |"
        )
    off = sorted(one.late - one.slept for one in found)
    print(f"\nlateness less time slept, residuals: {off[0]:.2f} to {off[-1]:.2f}")


def _said(judged: list[str]) -> str:
    return f"{judged.count('right')} right, {judged.count('wrong')} wrong"


if __name__ == "__main__":
    main()
