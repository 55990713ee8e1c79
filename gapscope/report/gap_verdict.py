"""The verdict of a run with a bound: what could be got back, from what, and what is hard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapscope.report import model, model_queries
from gapscope.report.document import Part, Quantity, Statement
from gapscope.units import interval, listed, plural, value, values

if TYPE_CHECKING:
    from gapscope.report.facts import Facts, Row

# With no more steps than this a headline says how far they differ.
FEW_STEPS = 3

# Of what makes steps longer, compute must be this share before its clock is worth a sentence.
CLOCK_MATTERS = 0.1

# What a rank that came last was doing, in words.
REASONS = {
    "R1": "R1 late launch",
    "R2": "R2 queue serialization",
    "compute": "its own compute",
    "hard": "the program's own order",
    "work": "work besides compute",
    "floor": "launch floor",
    "unresolved": "unresolved",
}


# Of a hard class: what waits for no collective.
IDLE_ANYWAY = (
    "would be idle in the bound as well (in this run the host, a queue or another rank was late "
    "there)"
)


def headline(facts: Facts) -> Statement:
    """One sentence: the step, the bound, and what lies between them; two where steps are uneven."""
    known = facts.model
    run = known.run
    begin = (
        f"A step takes {_text(known.amount('observed'))} on rank {run['rank']}; the rules "
        f"allow {value(run['t_lb_ns'], 'ns')} for the same work (T_lb, a program-order bound)"
    )
    if known.is_provisional:
        return Statement(
            f"{begin}, but there is no verdict on the {value(run['gap_ns'], 'ns')} between them: "
            f"{known.why_no('verdict')}.",
            "model-checks",
        )
    if known.is_uneven:
        return Statement(
            f"{_longer(facts)}. The rules allow {value(run['t_lb_mean_ns'], 'ns')} for the same "
            f"work (T_lb, a program-order bound): {_gain(run, 'mean_')}.",
            "t-lb",
        )
    hard = run["h1_ns"] + run["h2_ns"]
    rest = ""
    if hard > run["gap_ns"]:
        part = value(hard / run["observed_ns"], "share")
        rest = f"; {value(hard, 'ns')} ({part}) are hard idle that the program brings"
    if not known.sees_skew:
        rest += "; waits for ranks without a capture, if there are any, are inside T_lb"
    if known.is_clean:
        return Statement(f"{begin}: little is left, {_gain(run)}{rest}.", "t-lb")
    top = known.top
    most = ""
    if top is not None:
        name = model.mechanism(top["gap_class"], top["sub_cause"])
        amount = value(top["total_ns"], "ns")
        if 1 < top["step_count"] <= FEW_STEPS:
            low, high = values([top["total_min_ns"], top["total_max_ns"]], "ns")
            if low != high:
                amount += f" ({low} to {high} over {top['step_count']} steps)"
        most = f", {amount} of it {name}{_behind(facts, top['gap_class'])}"
    return Statement(f"{begin}: {_gain(run)}{most}{rest}.", "t-lb")


def _gain(run: Row, mean: str = "") -> str:
    gap = run[f"gap_{mean}ns"]
    share = value(gap / run[f"observed_{mean}ns"], "share")
    over = ", mean over the steps," if mean else ""
    return (
        f"at most {value(gap, 'ns')} ({share}){over} could be got back with the order of launches "
        "unchanged"
    )


def _behind(facts: Facts, gap_class: str) -> str:
    culprit = _culprit(facts) if gap_class == "R3" else None
    if culprit is None:
        return ""
    return f" behind rank {culprit['culprit_rank']} ({_reason(culprit)} there)"


def _longer(facts: Facts) -> str:
    """`3 of 6 steps on rank 1 are 41.8 ms longer than the others (208.3 ms against 166.5 ms): ...`.

    Of the parts it says what grew most, and what shrank where that hides a part of it: a class may
    grow by more than the step.
    """
    run = facts.model.run

    def more(name: str) -> int:
        return int(run[f"{name.lower()}_long_ns"] - run[f"{name.lower()}_other_ns"])

    longer, other, by = values(
        [run["observed_long_ns"], run["observed_other_ns"], abs(more("observed"))], "ns"
    )
    are = "is" if run["long_count"] == 1 else "are"
    said = (
        f"{run['long_count']} of {run['step_count']} steps on rank {run['rank']} {are} {by} "
        f"{'longer' if more('observed') >= 0 else 'shorter'} than the others "
        f"({longer} against {other})"
    )
    grown = {name: more(name) for name in model_queries.PARTS}
    most = max(grown, key=lambda part: grown[part])
    where = f" on rank {run['rank']}" if most in ("R1", "R2") else _behind(facts, most)
    hidden = ""
    if grown[most] > more("observed"):
        least = min(grown, key=lambda part: grown[part])
        if grown[least] < 0:
            hidden = f", {_part(least)} {value(-grown[least], 'ns')} shorter"
    return f"{said}: {_part(most)}{where} is {value(grown[most], 'ns')} longer{hidden}"


def _part(name: str) -> str:
    return f"{name} {model.NAMES[name]}" if name[0] in "RH" else model.NAMES[name]


def _gpu_clock(facts: Facts) -> list[Statement]:
    """How much of what compute adds to the long steps goes with the clock; only where sampled."""
    known = facts.model
    rows = facts.rows(model_queries.GPU_CLOCK) if known.is_uneven else []
    longer_ns = known.run["observed_long_ns"] - known.run["observed_other_ns"] if rows else 0
    if not rows or rows[0]["more_ns"] < CLOCK_MATTERS * longer_ns:
        return []
    (row,) = rows
    low, high = values([row["long_hz"], row["other_hz"]], "Hz")
    equal_ns = row["equal_clock_ns"]
    more, equal = values([row["more_ns"], abs(equal_ns)], "ns")
    # What is left is other work, or kernels that the clock does not pace.
    part = "none of that"
    if row["long_hz"] < row["other_hz"]:
        share = value(min(row["clock_share"], 1.0), "share")
        part = f"{share} of that; why it is lower, these samples do not say"
    return [
        Statement(
            f"The longer steps compute at a mean GPU clock of {low}, the others at {high}. Compute "
            f"is {more} longer in them; counted in cycles, at equal clock, it would be {equal} "
            f"{'longer' if equal_ns >= 0 else 'shorter'}: the clock explains {part}.",
            "gpu-clock",
        )
    ]


def _reason(row: Row) -> str:
    return REASONS.get(row["sub_cause"], str(row["sub_cause"]))


def _culprit(facts: Facts) -> Row | None:
    """The rank for which the run's rank waits longest, with that one's own reason."""
    rows = facts.rows(model_queries.CULPRITS)
    return next((row for row in rows if row["rank"] == facts.model.run["rank"]), None)


def statements(facts: Facts) -> list[Statement]:
    """What the headline rests on."""
    known = facts.model
    if known.is_provisional:
        return [
            Statement(
                "What stands: T_lb with its binding chain, and the three-way split over recorded "
                "launches and waits below. The classes of the gap in section 3 are provisional, "
                "and there is no what-if.",
                "model-checks",
            ),
            *_shortest(facts),
        ]
    return [
        *_gpu_clock(facts),
        _recoverable(known),
        *skew(facts, limit=2),
        _hard(facts),
        *_shortest(facts),
        *_modelled(facts),
    ]


def _shortest(facts: Facts) -> list[Statement]:
    """The bound by the shortest participant of each transfer, where that is another one."""
    rows = facts.rows(model_queries.bounds(facts.at.rank, facts.at.step_id))
    bound = {row["limits"]: row["bound_ns"] for row in rows}
    shortest = bound.get(model_queries.SHORTEST)
    t_lb = facts.model.run["t_lb_ns"]
    if shortest is None or shortest >= 0.99 * t_lb:
        return []
    return [
        Statement(
            f"T_lb takes transfers by their ends; by their shortest participant it is "
            f"{value(shortest, 'ns')}, so the bound lies between {value(shortest, 'ns')} and "
            f"{value(t_lb, 'ns')}.",
            "t-lb",
        )
    ]


def parts(facts: Facts) -> tuple[Part, ...]:
    """Tiles beside the headline."""
    known = facts.model
    names = ("T_lb", *(() if known.is_provisional else (*model_queries.RECOVERABLE, "H1", "H2")))
    found = [
        Part(
            name if name == "T_lb" else f"{name} {model.NAMES[name]}",
            "t_lb" if name == "T_lb" else name,
            known.amount(name),
        )
        for name in names
        if name == "T_lb" or known.run[f"{name.lower()}_ns"] is not None
    ]
    found.append(Part("compute", "compute", known.amount("compute")))
    other = sum(known.run[f"{name}_ns"] for name in (*model_queries.BESIDE, "work"))
    if other and not known.is_provisional:
        # So that the parts add up to the step.
        found.append(Part("other", "floor", Quantity(other, "ns")))
    return tuple(found)


def _text(amount: Quantity) -> str:
    return interval(amount.value, amount.unit, amount.n, amount.low, amount.high)


def _amounts(row: Row, names: tuple[str, ...]) -> str:
    """`R3 cross-rank skew 1.05 ms, R1 ...`, the largest first."""
    known = [name for name in names if row[f"{name.lower()}_ns"] is not None]
    order = sorted(known, key=lambda name: -row[f"{name.lower()}_ns"])
    times = values([row[f"{name.lower()}_ns"] for name in order], "ns")
    unknown = [name for name in names if name not in known]
    return ", ".join(
        f"{name + ' ' if name in ('R1', 'R2', 'R3') else ''}{model.NAMES[name]} {time}"
        for name, time in (
            *zip(order, times, strict=True),
            *((name, "unknown (ranks without a capture)") for name in unknown),
        )
    )


def _recoverable(known: model.Model) -> Statement:
    run = known.run
    where = f" (step {run['step_id']}, a long one)" if known.is_uneven else ""
    return Statement(
        f"Recoverable{where}: {_amounts(run, model_queries.RECOVERABLE)}. Also above T_lb: "
        f"{_amounts(run, model_queries.BESIDE)}.",
        "gap-classes",
    )


def skew(facts: Facts, limit: int) -> list[Statement]:
    """Which rank waits for which other one, where that is 1 % of its step, and why that is late."""
    rows = [row for row in facts.rows(model_queries.CULPRITS) if row["step_share"] >= 0.01]
    said = [
        f"rank {row['rank']} waits {value(row['total_ns'], 'ns')} for rank {row['culprit_rank']}, "
        f"whose own reason is {_reason(row)}"
        for row in rows[:limit]
    ]
    if not said:
        return []
    rest = f"; {len(rows) - limit} more in section 4" if len(rows) > limit else ""
    over = f"mean over {plural(rows[0]['step_count'], 'step')}"
    return [Statement(f"R3, {over}: {'; '.join(said)}{rest}.", "gap-classes")]


def _hard(facts: Facts) -> Statement:
    known = facts.model
    rows = facts.rows(model_queries.causes(facts.at.rank, facts.at.step_id))
    said = []
    for name, what in (
        ("H1", "nothing of the step could run beside it"),
        ("H2", "too little is left to run beside it"),
    ):
        total = known.run[f"{name.lower()}_ns"]
        if not total:
            continue
        part = hard_parts(rows, name)
        for_ = f"waiting for {listed(part.awaited, 3)} ({what})" if part.awaited else ""
        words = [for_] if for_ else []
        if part.idle_anyway_ns:
            idle = value(part.idle_anyway_ns, "ns")
            words = (
                [f"{value(part.awaited_ns, 'ns')} {for_}", f"{idle} more {IDLE_ANYWAY}"]
                if for_
                else [IDLE_ANYWAY]
            )
        colon = ":" if len(words) > 1 else ""
        said.append(f"{name} {model.NAMES[name]} {value(total, 'ns')}{colon} {', '.join(words)}")
    if not said:
        return Statement("No hard idle: the bound keeps compute busy throughout.", "t-lb")
    rest = (
        "" if known.sees_skew else " What was waited for ranks without a capture is part of this."
    )
    return Statement(f"Hard while program and batch stay: {'; '.join(said)}.{rest}", "gap-classes")


@dataclass(frozen=True, slots=True)
class HardParts:
    """A hard class by what it waits for, and what was late but would be idle in the bound too."""

    awaited: list[str]
    awaited_ns: int
    idle_anyway_ns: int


def hard_parts(causes: list[Row], name: str) -> HardParts:
    """Of H1 or H2, from the causes of a step."""
    own = [row for row in causes if row["gap_class"] == name]
    waits = [row for row in own if row["awaited_node"]]
    awaited_ns = sum(row["total_ns"] for row in waits)
    return HardParts(
        awaited=list(dict.fromkeys(row["awaited_node"] for row in waits)),
        awaited_ns=awaited_ns,
        idle_anyway_ns=sum(row["total_ns"] for row in own) - awaited_ns,
    )


def _modelled(facts: Facts) -> list[Statement]:
    known = facts.model
    if not known.rungs:
        why = known.why_no("ladder") or "no step was replayed"
        return [Statement(f"No what-if: {why}. T_lb and the classes stand.", "model-checks")]
    top = known.top
    if known.is_clean or top is None:
        return []
    removed = top["gap_class"]
    culprit = _culprit(facts)
    if removed == "R3" and culprit is not None and culprit["sub_cause"] in known.rungs:
        # Waiting is over when the rank that comes last is on time.
        removed = culprit["sub_cause"]
    every = max(known.rungs.values(), key=lambda row: len(row["removed"]))
    *some, last = every["removed"].split("+")
    # R3 has no rung where only some of the ranks that take part were captured.
    rung = known.rungs.get(removed, every)
    alone = (
        "" if rung is every else f"without {removed} the step takes {plain_and_stretched(rung)}, "
    )
    steps = f"{alone}without {', '.join(some)} and {last} {plain_and_stretched(every)}"
    return [
        Statement(
            f"Modelled{_over(known)}: {steps}; replayed as executed "
            f"{value(known.rungs['']['step_ns'], 'ns')}."
            + (
                " The longer ones are with compute that comes to overlap slowed down "
                f"x{known.factor:.2f}, as this capture shows."
                if known.factor is not None and " to " in steps
                else ""
            ),
            "ladder",
        )
    ]


def _over(known: model.Model) -> str:
    count = known.rungs[""]["step_count"]
    return f", mean over {count} steps" if count > 1 else ""


def plain_and_stretched(row: Row) -> str:
    """`157.5 to 162.7 ms`: without and with the stretch of newly overlapped compute."""
    low, high = row["step_ns"], row["stretched_ns"]
    if high is None or high == low:
        return value(low, "ns")
    low_text, high_text = values([low, high], "ns")
    if low_text == high_text:
        return low_text
    number, _, unit = low_text.partition(" ")
    return f"{number if high_text.endswith(f' {unit}') else low_text} to {high_text}"
