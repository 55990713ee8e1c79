"""What a comparison says, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gapscope.compare.document import Check, Ledger, Line, StepLine
from gapscope.compare.intervals import BOOTSTRAP, EDGES, FEWEST, LEVEL, RESAMPLES, SEED, Interval
from gapscope.report.document import Statement
from gapscope.units import plural, value, values

Row = dict[str, Any]

# A part that makes less than this share of the difference is not named in a sentence.
_NAMED_SHARE = 0.1
# Nor one that makes less than this share of the step.
_SMALLEST = 0.001


def signed(amount: float | None) -> str:
    """A difference with its sign and unit, e.g. `+44.5 ms`."""
    return value(amount, "+ns")


def unit(shown: Row) -> str:
    """What times are given for, after `a`."""
    return "step" if shown["projection"] == "device" else f"launch of {_code(shown['anchor'])}"


def refusal(checks: Iterable[Check]) -> Statement:
    """Why nothing is judged."""
    said = "; ".join(
        f"{check.item}: {_sides(check)}" + (f" ({check.detail})" if check.detail else "")
        for check in checks
        if check.verdict == "forbids"
    )
    return Statement(
        f"Not comparable. {said or 'No step has all ranks that both runs have'}.", "comparable"
    )


def headline(checks: Iterable[Check], steps: Sequence[StepLine], unit: str) -> Statement:
    """How much longer or shorter, and how sure that is."""
    run = next(line for line in steps if line.rank is None)
    before, after = values([run.a_median_ns, run.b_median_ns], "ns")
    amount = value(abs(run.median_delta_ns), "ns")
    share = value(abs(run.median_delta_share), "share")
    slowest = " on the slowest rank" if len(steps) > 2 else ""
    sign = run.median_interval.sign
    where = f"{before} in A, {after} in B{slowest}"
    if unit == "step":
        where += f", medians of {run.a_count} and {plural(run.b_count, 'step')}"
    how = _how_sure(run.median_interval)
    in_mean = run.mean_interval.sign
    if sign == 0 and in_mean != 0:
        # Steps of two kinds: their median is one or the other, however many are captured.
        low, high = values([run.b_low_ns, run.b_high_ns], "ns")
        text = (
            f"In the mean a {unit} of B is {value(abs(run.mean_delta_ns), 'ns')} "
            f"{'longer' if in_mean > 0 else 'shorter'} ({_how_sure(run.mean_interval)}); medians "
            f"do not tell: {signed(run.median_delta_ns)} ({where}; {how}). Steps of B take {low} "
            f"to {high}."
        )
    elif sign == 0:
        text = (
            f"Whether a {unit} of B is longer or shorter is not resolved: "
            f"{signed(run.median_delta_ns)} ({where}; {how})."
        )
    else:
        word = "longer" if sign > 0 else "shorter"
        text = f"A {unit} of B is {amount} ({share}) {word}: {where}; {how}."
    confounding = [check.item for check in checks if check.is_confounding]
    if confounding:
        text += f" No difference is the program's alone: {', '.join(confounding)} differ too."
    return Statement(text, "difference")


def _how_sure(interval: Interval) -> str:
    low, high = signed(interval.low_ns), signed(interval.high_ns)
    if interval.kind == BOOTSTRAP:
        return f"{100 * LEVEL:.0f} % interval {low} to {high}"
    if interval.kind == EDGES:
        return f"one launch more or less in each makes it {low} to {high}"
    every = {
        1: "every step of B is longer than every one of A",
        -1: "every step of B is shorter than every one of A",
    }
    overlap = every.get(interval.sign, "their ranges overlap")
    return f"{overlap} ({low} to {high}); fewer than {FEWEST} steps give no interval"


def statements(
    checks: Iterable[Check],
    steps: Sequence[StepLine],
    ledgers: Sequence[Ledger],
    shown: Row,
    queues: Sequence[Row],
) -> tuple[Statement, ...]:
    """What the headline rests on, what cannot be said, and what else differs."""
    checks = list(checks)
    said = [
        *_same(checks),
        *_made_of(ledgers, steps, shown["rank"]),
        *_queues(queues),
        *_residual(ledgers),
    ]
    said += [
        Statement(f"Not to be said: {check.detail} ({check.item}{_where(check)}).", "comparable")
        for check in checks
        if check.verdict == "limits" and check.detail
    ]
    differing = [check for check in checks if check.verdict == "differs" and check.area != "steps"]
    if differing:
        listed = "; ".join(f"{check.item}: {_sides(check)}" for check in differing)
        said.append(
            Statement(f"Also different, and not told apart from the change: {listed}.", "cause")
        )
    if shown["projection"] == "capture":
        said.append(
            Statement(
                f"Without steps on both sides whole captures are compared, a launch of "
                f"{_code(shown['anchor'])}: {shown['a_count']:,} in A, {shown['b_count']:,} in B.",
                "unit",
            )
        )
    elif steps[0].median_interval.kind == BOOTSTRAP:
        said.append(
            Statement(
                f"Intervals: {100 * LEVEL:.0f} %, bootstrap over the steps of each run "
                f"({RESAMPLES:,} resamples, seed {SEED}). What changes from run to run is not in "
                "them.",
                "interval",
            )
        )
    return tuple(said)


def _same(checks: Iterable[Check]) -> Iterable[Statement]:
    """That there is one run, read twice."""
    if any(check.item == "captures" for check in checks):
        yield Statement(
            "A and B are the same run: both were made from the same captures. What differs comes "
            "from how they were read, not from the program.",
            "comparable",
        )


def _made_of(
    ledgers: Sequence[Ledger], steps: Sequence[StepLine], rank: int
) -> Iterable[Statement]:
    """The largest parts of the difference on the shown rank."""
    own = {ledger.id.partition("-")[0]: ledger for ledger in ledgers if ledger.rank == rank}
    ledger = own.get("model")
    if ledger is None or ledger.is_provisional:
        ledger = own["split"]
    line = next(line for line in steps if line.rank == rank)
    step = ledger.total.a_ns or 0
    parts = [part for part in ledger.lines if _counts(part, ledger.total, step)]
    parts.sort(key=lambda part: -abs(part.delta_ns or 0))
    longest = " (the longest in B)" if len(steps) > 2 else ""
    if not parts:
        return
    named = ", ".join(f"{part.label} {signed(part.delta_ns)}" for part in parts[:4])
    yield Statement(
        f"On rank {rank}{longest} the mean changes by {signed(line.mean_delta_ns)}: {named}.",
        ledger.claim,
    )
    nodes = own.get("node") or own.get("range")
    if nodes is not None:
        top = [part for part in nodes.lines if _counts(part, ledger.total, step)][:3]
        if top:
            shown = ", ".join(f"{_code(part.label)} {signed(part.delta_ns)}" for part in top)
            yield Statement(f"It shows most at {shown}.", "charge")


def _counts(part: Line, total: Line, step: float) -> bool:
    """Whether a part is resolved, and large enough to be named."""
    amount = abs(part.delta_ns or 0)
    is_resolved = part.interval is None or part.interval.sign != 0
    least = max(_NAMED_SHARE * abs(total.delta_ns or 0), _SMALLEST * step)
    return is_resolved and amount >= least and amount > 0


def _queues(rows: Sequence[Row]) -> Iterable[Statement]:
    found = {
        side: sorted({row["streams"] for row in rows if row["side"] == side}) for side in ("A", "B")
    }
    if found["A"] == found["B"]:
        return
    said = ", ".join(
        f"{side}: {' and '.join(streams) if streams else 'none found'}"
        for side, streams in found.items()
    )
    yield Statement(
        f"Streams that share a hardware queue differ, as inferred from the traces. {said}.",
        "mechanism",
    )


def _residual(ledgers: Sequence[Ledger]) -> Iterable[Statement]:
    most = max(abs(ledger.residual_ns) for ledger in ledgers)
    of_median = max(abs(ledger.median_residual_ns or 0) for ledger in ledgers)
    yield Statement(
        f"Each of {plural(len(ledgers), 'ledger')} sums to the difference of the means, with a "
        f"residual of {value(most, 'ns')}, and those of parts to that of the medians, with "
        f"{value(of_median, 'ns')}.",
        "ledger",
    )


def _code(name: str | None) -> str:
    """A name in backticks, none of which it holds itself."""
    return "`" + (name or "").replace("`", "'") + "`"


def _where(check: Check) -> str:
    """On which side a limit stands; what a value is worth there is in the table of checks."""
    if check.area != "quality":
        return f": {_sides(check)}"
    if "ok" in (check.a, check.b):
        return " in B only" if check.a == "ok" else " in A only"
    return ""


def _sides(check: Check) -> str:
    if check.a == check.b:
        return f"{check.a or 'unknown'} in both"
    return f"A {check.a or 'unknown'}, B {check.b or 'unknown'}"
