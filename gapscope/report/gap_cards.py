"""Section 5 with a bound: one card a mechanism of the gap, then the hard idle of the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapscope.report import confidence, model, model_queries
from gapscope.report.document import Opportunity, Quantity, Statement
from gapscope.report.facts import THRESHOLD, code
from gapscope.report.gap_verdict import (
    IDLE_ANYWAY,
    REASONS,
    hard_parts,
    plain_and_stretched,
)
from gapscope.units import listed, plural, value

if TYPE_CHECKING:
    from gapscope.report.actions import Advice
    from gapscope.report.facts import Facts, Row

# No action against a class of the gap asks for evidence beyond the class and its cause.
_NO_TAGS: frozenset[str] = frozenset()

# Replayed changes that say something of a cost, beside those that model one of its actions.
_ALSO_REPLAYED = {
    "R1": ("no pauses between launches", "all-gather issued at rule-ready time"),
    "R3": ("rank ",),
}


def build(facts: Facts) -> tuple[Opportunity, ...]:
    """Cards for what holds at least 1 % of the run's step: recoverable first, then hard."""
    query = model.mechanisms_query(facts.model.run)
    return tuple(
        _card(facts, row, query) for row in facts.model.mechanisms if row["step_share"] >= THRESHOLD
    )


def statements(facts: Facts, cards: tuple[Opportunity, ...]) -> list[Statement]:
    """Words before the cards."""
    run = facts.model.run
    said = []
    where = f"in step {facts.at.step_id} " if facts.model.is_uneven else ""
    if not any(card.title.startswith("R") for card in cards):
        said.append(
            Statement(
                f"No recoverable class reaches {value(THRESHOLD, 'share')} of the step.",
                "gap-classes",
            )
        )
    said.append(
        Statement(
            f"Classes are disjoint: {where}"
            + ("R1 and R2" if run["r3_ns"] is None else "R1, R2 and R3")
            + f" together are {value(facts.model.recoverable_ns, 'ns')} of the "
            f"{value(run['gap_ns'], 'ns')} above T_lb. R is what "
            "could be got back, H is hard while the program stays.",
            "gap-classes",
        )
    )
    said.append(
        Statement(
            "A ceiling is `T/(T-R) - 1`: the most that the step could speed up if that time "
            "vanished and nothing else grew. Ceilings do not add, and none is a forecast.",
            "ceiling",
        )
    )
    return said


def _causes(facts: Facts, name: str, sub: str) -> tuple[int, list[Row]]:
    """What the class is made of in the step shown, or, where that has none of it, in its worst."""

    def of(step: int) -> list[Row]:
        return [
            cause
            for cause in facts.rows(model_queries.causes(facts.at.rank, step))
            if cause["gap_class"] == name and (name != "R2" or (cause["sub_cause"] or "") == sub)
        ]

    shown = facts.at.step_id
    if own := of(shown):
        return shown, own
    part = sub if name == "R2" else None
    worst = facts.rows(model_queries.worst_step(facts.at.rank, name, part))[0]["step_id"]
    return worst, of(worst)


def _card(facts: Facts, row: Row, query: str) -> Opportunity:
    known = facts.model
    name, sub = row["gap_class"], row["sub_cause"] or ""
    advice = _of(facts.costs, name, sub)
    step, own = _causes(facts, name, sub)
    n = row["step_count"]
    # Waiting for a rank is over when that rank is on time.
    removed = own[0]["sub_cause"] if name == "R3" else name
    rung = known.rungs.get(removed, known.rungs.get(name))
    tried = [
        _worth(known, name, action)
        for action in advice.chosen(_NO_TAGS, cause=own[0]["sub_cause"] or "")
    ]
    if name == "R3":
        tried = [*_for_last(facts, own[0]), *tried]
    see = ["gaps", "causes", f"gantt-rank-{facts.at.rank}"]
    see += ["ladder", "changes"] if known.rungs and name.startswith("R") else []
    see += {"hw_queue": ["queues"]}.get(sub, [])
    see += {"H1": ["binding-chain"], "H2": ["bounds"]}.get(name, [])
    time = Quantity(row["total_ns"], "ns", n, row["total_min_ns"], row["total_max_ns"])
    return Opportunity(
        id="finding-" + "-".join(part for part in (name, sub) if part).lower().replace("_", "-"),
        title=model.mechanism(name, sub) + (" (hard)" if name.startswith("H") else ""),
        mechanism=Statement(advice.mechanism, "gap-classes"),
        time=time,
        step_share=row["step_share"],
        ceiling=Quantity(row["ceiling"], "share", n, row["ceiling_min"], row["ceiling_max"]),
        evidence=tuple(_evidence(facts, name, sub, step, own, advice)),
        see=tuple(see),
        what_to_try=tuple(tried),
        not_when=advice.not_when,
        query=query,
        claim="advice",
        bound=_bound(name),
        confidence=confidence.of_gap(facts, row, time, rung),
        verify=confidence.verify(advice),
        modelled=None if rung is None else model.ranged(rung, "step"),
    )


def _for_last(facts: Facts, cause: Row) -> list[str]:
    """What to try on the rank that comes last, for its own reason."""
    last, reason = cause["culprit_rank"], cause["sub_cause"]
    if last is None or reason not in ("R1", "R2"):
        return []
    rows = facts.rows(model_queries.causes(last, facts.at.step_id))
    why = next((row["sub_cause"] or "" for row in rows if row["gap_class"] == reason), "")
    tip = _of(facts.costs, reason, why).chosen(_NO_TAGS, cause=why)[0]["advice"]
    return [f"On rank {last}: {tip[:1].lower()}{tip[1:]}"]


def _bound(name: str) -> Statement:
    """Which way the time of a class may be wrong."""
    if name.startswith("H"):
        return Statement(
            "Part of T_lb: nothing of it comes back while the program stays as it is.", "t-lb"
        )
    return Statement(
        "At most this, under the rules: it is what stays saved to the end of the step, in host "
        "issue order and with the buffers that the run has.",
        "gap-classes",
    )


def _of(costs: dict[str, Advice], gap_class: str, sub_cause: str) -> Advice:
    """What is said of a class of the gap; queues differ by what shares them."""
    if gap_class != "R2":
        return costs[gap_class]
    return costs.get(f"R2 {sub_cause}", costs["R2 stream"])


def _evidence(
    facts: Facts, name: str, sub: str, step: int, own: list[Row], advice: Advice
) -> list[Statement]:
    said = []
    where = f"In step {step}: " if step != facts.at.step_id else ""
    if facts.model.is_uneven:
        said.append(
            Statement("Time, share and ceiling are means over the steps that count.", "gap-classes")
        )
        where = f"In step {step}: "
    said.append(Statement(where + _made_of(name, own), "gap-classes"))
    hidden = sum(cause["hidden_ns"] for cause in own)
    if hidden and name in ("R1", "R2"):
        said.append(
            Statement(
                f"{value(hidden, 'ns')} of it lie before the gap: a collective that started late "
                "shows as a transfer that compute waits for.",
                "gap-classes",
            )
        )
    if sub == "hw_queue":
        said += [
            Statement(
                f"Streams {code(row['streams'])} share a queue (inferred: "
                f"{row['instance_count']:,} of "
                f"{plural(row['instance_count'] + row['counter_examples'], 'late or early start')} "
                "fit).",
                "hardware-queues",
            )
            for row in facts.rows(model_queries.QUEUES)[:4]
        ]
    return [*said, *_modelled(facts.model, name, own, advice)]


def _made_of(name: str, own: list[Row]) -> str:
    pieces = plural(sum(cause["piece_count"] for cause in own), "piece")
    if name.startswith("H"):
        awaited = [cause for cause in own if cause["awaited_node"]]
        said = listed(
            [f"{code(c['awaited_node'])} {value(c['total_ns'], 'ns')}" for c in awaited], 4
        )
        idle = hard_parts(own, name).idle_anyway_ns
        rest = [f"{value(idle, 'ns')} {'more ' if said else ''}{IDLE_ANYWAY}"] if idle else []
        return "; ".join([pieces, *([f"waited for: {said}"] if said else []), *rest]) + "."
    if name == "R3":
        said = listed(
            [
                f"rank {c['culprit_rank']} ({REASONS.get(c['sub_cause'], c['sub_cause'])}) "
                f"{value(c['total_ns'], 'ns')}"
                for c in own
            ],
            4,
        )
        return f"{pieces}; last came, for its own reason: {said}."
    if name == "R1":
        by_cause: dict[str, int] = {}
        for cause in own:
            key = cause["sub_cause"] or "unknown"
            by_cause[key] = by_cause.get(key, 0) + cause["total_ns"]
        said = listed([f"{key} {value(total, 'ns')}" for key, total in by_cause.items()], 4)
        return f"{pieces}; the launching thread was in: {said}."
    return f"{pieces}."


def _can_tell(known: model.Model, name: str) -> bool:
    """Where more is recoverable than hard, what a change saves says nothing of the hard part."""
    hard = known.run[f"{name.lower()}_ns"] if name.startswith("H") else None
    return hard is None or known.recoverable_ns <= hard


def _worth(known: model.Model, name: str, action: Row) -> str:
    """The advice, and that it saves nothing where it was modelled and does not."""
    tip: str = action["advice"]
    if not known.rungs or not action["modelled_by"]:
        return tip
    limit = THRESHOLD * known.rungs[""]["step_ns"]
    saved = [
        row["saved_ns"] for row in known.changes if row["change"].startswith(action["modelled_by"])
    ]
    if not saved or max(saved) >= limit:
        return tip
    if not _can_tell(known, name) and known.top is not None:
        return f"{tip} (modelled: nothing while {known.top['gap_class']} is in the way)"
    return f"{tip} (modelled: nothing here)"


def _modelled(known: model.Model, name: str, own: list[Row], advice: Advice) -> list[Statement]:
    """What a replay says, of the mechanism and of changes that address it."""
    if not known.rungs:
        return []
    if not _can_tell(known, name):
        return []
    base = value(known.rungs[""]["step_ns"], "ns")
    said = []
    own_reasons = [cause["sub_cause"] for cause in own] if name == "R3" else []
    for removed in dict.fromkeys((name, *own_reasons)):
        rung = known.rungs.get(removed)
        if rung is not None:
            said.append(f"without {removed} {plain_and_stretched(rung)}")
    replayed = (
        *_ALSO_REPLAYED.get(name, ()),
        *(action["modelled_by"] for action in advice.actions if action["modelled_by"]),
    )
    said += [
        f"{code(row['change'])} {value(row['step_ns'], 'ns')}"
        for row in known.changes
        if row["change"].startswith(replayed)
        or (name == "R3" and row["change"].startswith("rank "))
    ]
    if not said:
        return []
    return [
        Statement(
            f"Modelled, everything else as executed ({base}), means over the steps: "
            f"{', '.join(said)}.",
            "ladder",
        )
    ]
