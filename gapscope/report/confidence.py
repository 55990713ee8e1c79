"""How far a card can be relied on, and how to check it: by rule, with the reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapscope.report.document import Statement
from gapscope.report.verdict import blocking_bound
from gapscope.units import plural, value

if TYPE_CHECKING:
    from gapscope.report.actions import Advice
    from gapscope.report.document import Quantity
    from gapscope.report.facts import Facts, Row

# Fewer steps than this, or values that differ by more than this share of the shown one, say little.
_FEW_STEPS = 3
_SPREAD = 0.5
# The replay and the classes are independent: within this share of each other they agree.
_AGREES = 0.25

_LEVELS = ("high", "medium")


def verify(advice: Advice) -> str:
    """How to check a change."""
    return f"Capture again the same way and run `gapscope compare BEFORE AFTER`: {advice.verify}"


def of_class(facts: Facts, absent_class: str, time: Quantity) -> Statement:
    """Of a class of the recorded split."""
    doubts = [*_of_window(facts), *_of_spread(time)]
    if absent_class in ("blocking", "stalled") and blocking_bound(facts)[0] == "lower":
        doubts.append("waits without a known producer move time between blocking and stalled")
    return _said(doubts, facts)


def of_gap(facts: Facts, row: Row, time: Quantity, rung: Row | None) -> Statement:
    """Of a class of the gap above, or inside, the bound; `rung` may remove why a rank was late."""
    doubts = [*_of_window(facts), *_of_spread(time)]
    if row["gap_class"].startswith("R"):
        if rung is None:
            doubts.append("no replay without it checks the class")
        elif abs(rung["saved_ns"] - row["total_ns"]) > _AGREES * row["total_ns"]:
            doubts.append(
                f"a replay without {rung['removed']} saves {value(rung['saved_ns'], 'ns')}, the "
                f"class holds {value(row['total_ns'], 'ns')}"
            )
    return _said(doubts, facts)


def of_kernels(facts: Facts) -> Statement:
    """Of the share of the window that kernels fill."""
    return _said(_of_window(facts), facts)


def _of_window(facts: Facts) -> list[str]:
    if facts.projection != "device":
        return ["no step was recognised", "one window, the whole capture"]
    doubts = []
    if facts.is_inferred:
        doubts.append("the steps are a period that only recurred")
    if facts.top["step_count"] < _FEW_STEPS:
        doubts.append(f"only {plural(facts.top['step_count'], 'step')} counted")
    if facts.is_perturbed:
        doubts.append("the profiler slowed these steps")
    if facts.shared:
        doubts.append("ranks share a device and contend for it")
    return doubts


def _of_spread(time: Quantity) -> list[str]:
    if time.low is None or time.high is None or not time.value or time.n == 1:
        return []
    if time.high - time.low <= _SPREAD * time.value:
        return []
    return [f"it lies between {value(time.low, 'ns')} and {value(time.high, 'ns')}"]


def _said(doubts: list[str], facts: Facts) -> Statement:
    level = _LEVELS[len(doubts)] if len(doubts) < len(_LEVELS) else "low"
    why = "; ".join(doubts) or (
        f"{plural(facts.top['step_count'], 'step')} that agree, nothing in the capture against it"
    )
    return Statement(f"{level[:1].upper()}{level[1:]}: {why}.", "confidence")
