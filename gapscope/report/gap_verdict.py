"""The verdict of a run with a bound: what could be got back, from what, and what is hard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapscope.model.ladder import MECHANISMS
from gapscope.report import model, model_queries
from gapscope.report.document import Part, Statement
from gapscope.units import interval, listed, value, values

if TYPE_CHECKING:
    from gapscope.report.document import Quantity
    from gapscope.report.facts import Facts, Row

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


def headline(facts: Facts) -> Statement:
    """One sentence: the step, the bound, and what lies between them."""
    known = facts.model
    gap = known.run["gap_ns"]
    share = value(known.run["gap_share"], "share")
    begin = (
        f"A step takes {_text(known.amount('observed'))} on rank {known.run['rank']}; the rules "
        f"allow {value(known.run['t_lb_ns'], 'ns')} for the same work (T_lb, a program-order bound)"
    )
    if known.is_provisional:
        return Statement(
            f"{begin}, but there is no verdict on the {value(gap, 'ns')} between them: "
            f"{known.why_no('verdict')}.",
            "model-checks",
        )
    hard = known.run["h1_ns"] + known.run["h2_ns"]
    rest = ""
    if hard > gap:
        part = value(hard / known.run["observed_ns"], "share")
        rest = f"; {value(hard, 'ns')} ({part}) are hard idle that the program brings"
    if known.is_clean:
        return Statement(
            f"{begin}: little is left, at most {value(gap, 'ns')} ({share}) could be got back"
            f"{rest}.",
            "t-lb",
        )
    top = known.top
    most = ""
    if top is not None:
        name = model.mechanism(top["gap_class"], top["sub_cause"])
        most = f", {value(top['total_ns'], 'ns')} of it {name}"
        culprit = _culprit(facts)
        if top["gap_class"] == "R3" and culprit is not None:
            most += f" behind rank {culprit['culprit_rank']} ({_reason(culprit)} there)"
    return Statement(
        f"{begin}: at most {value(gap, 'ns')} ({share}) could be got back{most}{rest}.", "t-lb"
    )


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
            )
        ]
    return [
        _recoverable(known),
        *skew(facts, limit=2),
        _hard(facts),
        *_modelled(facts),
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
    ]
    return (*found, Part("compute", "compute", known.amount("compute")))


def _text(amount: Quantity) -> str:
    return interval(amount.value, amount.unit, amount.n, amount.low, amount.high)


def _amounts(row: Row, names: tuple[str, ...]) -> str:
    """`R3 cross-rank skew 1.05 ms, R1 ...`, the largest first."""
    order = sorted(names, key=lambda name: -row[f"{name.lower()}_ns"])
    times = values([row[f"{name.lower()}_ns"] for name in order], "ns")
    return ", ".join(
        f"{name + ' ' if name in ('R1', 'R2', 'R3') else ''}{model.NAMES[name]} {time}"
        for name, time in zip(order, times, strict=True)
    )


def _recoverable(known: model.Model) -> Statement:
    run = known.run
    return Statement(
        f"Recoverable: {_amounts(run, model_queries.RECOVERABLE)}. Also above T_lb: "
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
    return [Statement(f"R3 in the median steps: {'; '.join(said)}{rest}.", "gap-classes")]


def _hard(facts: Facts) -> Statement:
    known = facts.model
    rows = [
        row
        for row in facts.rows(model_queries.causes(facts.at.rank, facts.at.step_id))
        if row["awaited_node"]
    ]
    said = []
    for name, what in (
        ("H1", "nothing of the step could run beside it"),
        ("H2", "too little is left to run beside it"),
    ):
        total = known.run[f"{name.lower()}_ns"]
        if not total:
            continue
        awaited = list(
            dict.fromkeys(row["awaited_node"] for row in rows if row["gap_class"] == name)
        )
        for_ = f" waiting for {listed(awaited, 3)}" if awaited else ""
        said.append(f"{name} {model.NAMES[name]} {value(total, 'ns')}{for_} ({what})")
    if not said:
        return Statement("No hard idle: the bound keeps compute busy throughout.", "t-lb")
    return Statement(f"Hard while program and batch stay: {'; '.join(said)}.", "gap-classes")


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
    rung, every = known.rungs[removed], known.rungs["+".join(MECHANISMS)]
    return [
        Statement(
            f"Modelled: without {removed} the step takes {plain_and_stretched(rung)}, without R1, "
            f"R2 and R3 {plain_and_stretched(every)}; replayed as executed "
            f"{value(known.rungs['']['step_ns'], 'ns')}."
            + (
                " The longer ones are with compute that comes to overlap slowed down "
                f"x{known.factor:.2f}, as this capture shows."
                if known.factor is not None and rung["stretched_ns"] not in (None, rung["step_ns"])
                else ""
            ),
            "ladder",
        )
    ]


def plain_and_stretched(row: Row) -> str:
    """`157.5 to 162.7 ms`: without and with the stretch of newly overlapped compute."""
    low, high = row["step_ns"], row["stretched_ns"]
    if high is None or high == low:
        return value(low, "ns")
    low_text, high_text = values([low, high], "ns")
    number, _, unit = low_text.partition(" ")
    return f"{number if high_text.endswith(f' {unit}') else low_text} to {high_text}"
