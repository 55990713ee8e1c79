"""Section 5: one card a mechanism, ranked by ceiling. Advice follows from what held the time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapscope.report import confidence, gains, gap_cards, kernel_card, queries, root_causes
from gapscope.report.document import Opportunity, Quantity, Section, Statement
from gapscope.report.facts import THRESHOLD, code
from gapscope.report.setting import Setting, Shape, setting
from gapscope.report.verdict import (
    KERNELS,
    blocking_bound,
    communication,
    is_copy_bound,
    largest_copy,
)
from gapscope.units import plural, value

if TYPE_CHECKING:
    from gapscope.report.facts import Facts, Row


# From this share of the blocking time on, communication beside it is the likelier reason.
_BESIDE = 0.5

# Costs of `v1.cost`, by class of compute-absent time or by what held blocking time.
_BY_CLASS = {"launch_starved": "launch", "stalled": "stalled", "tail": "tail"}
_BY_BLAME = {"communication": "communication", "copy": "copy", "packing": "packing"}


@dataclass(frozen=True, slots=True)
class _Held:
    """Who held the blocking time: by reason, by op, and the communication beside it."""

    blame: list[Row]
    names: list[Row]
    beside: list[Row]


def build(facts: Facts, copies: list[Row]) -> tuple[Opportunity, ...]:
    """Cards for every mechanism, or class of compute-absent time, of 1 % of the median step."""
    if facts.window is None:
        return ()
    where = setting(facts, copies)
    kernels = kernel_card.build(facts, where)
    if facts.model.has_classes:
        return (*gap_cards.build(facts), *kernels)
    query = queries.ceilings(facts.at)
    found = [row for row in facts.rows(query) if row["step_share"] >= THRESHOLD]
    if not found:
        return kernels
    rank = facts.at.rank
    held = _Held(
        facts.rows(queries.blame(facts.at), rank),
        facts.rows(queries.blame_names(facts.at), rank),
        facts.rows(queries.beside_blocking(facts.at), rank) if facts.top["comm_ns"] else [],
    )
    pieces = {row["absent_class"]: row for row in facts.rows(queries.pieces(facts.at), rank)}
    cards = [_card(facts, where, row, query, held, pieces, copies) for row in found]
    return (*cards, *kernels)


def section(facts: Facts, opportunities: tuple[Opportunity, ...]) -> Section:
    """Words and tables before the cards."""
    linked, causes = root_causes.build(facts, opportunities)
    tables = (*gains.tables(facts), *causes)
    if facts.model.has_classes:
        said = (*gap_cards.statements(facts, opportunities), *gains.statements(facts), *linked)
        return Section("opportunities", "Ranked opportunities", said, tables=tables)
    statements = gains.statements(facts)
    found = [card for card in opportunities if card.id != KERNELS]
    if found:
        statements.append(
            Statement(
                "Ranked by time. No ceiling in percent is given: "
                + (
                    "this is the whole capture and not a step."
                    if facts.projection == "capture"
                    else "compute is less than 10 % of the step, so it would only say that."
                ),
                "split",
            )
            if found[0].ceiling is None
            else Statement(
                "Ranked by ceiling: the most that the step could speed up if all time of that kind "
                "vanished and nothing else grew. The kinds are disjoint, yet ceilings do not add, "
                "and none of them is a forecast.",
                "ceiling",
            )
        )
    elif facts.focus is not None:
        statements.append(
            Statement(
                "No finding: no class of compute-absent time reaches "
                f"{value(THRESHOLD, 'share')} of the {facts.noun}.",
                "split",
            )
        )
    else:
        statements.append(Statement("No finding: nothing is budgeted.", "capture"))
    missing: tuple[Statement, ...] = ()
    if found:
        missing = (
            Statement(
                "Which part of this is recoverable, and what a change would really bring, is not "
                "said: that needs a dependency model that fits the workload and reproduces the "
                "run.",
                "no-bound",
            ),
        )
    return Section(
        "opportunities",
        "Ranked opportunities",
        (*statements, *linked),
        tables=tables,
        missing=missing,
    )


def _card(
    facts: Facts,
    where: Setting,
    row: Row,
    query: str,
    held: _Held,
    pieces: dict[str, Row],
    copies: list[Row],
) -> Opportunity:
    absent_class = row["absent_class"]
    n = row["step_count"]
    shape = Shape.of(pieces.get(absent_class))
    cost = _BY_CLASS.get(absent_class) or _blocking_cost(
        held, row["absent_ns"], blocking_bound(facts)[0]
    )
    advice = facts.costs[cost]
    evidence, see = _evidence(facts, where, absent_class, held, shape, copies)
    chosen = advice.chosen(where.tags | {shape.tag}, shape=shape.tag)
    tried = tuple(action["advice"] for action in chosen)
    if cost == "copy" and where.pinned_rate:
        tried = (*tried, where.pinned_rate)
    time = Quantity(row["absent_ns"], "ns", n, row["absent_min_ns"], row["absent_max_ns"])
    ceiling = None
    if facts.has_ceiling:
        ceiling = Quantity(row["ceiling"], "share", n, row["ceiling_min"], row["ceiling_max"])
    return Opportunity(
        id=f"finding-{absent_class.replace('_', '-')}",
        title=f"{absent_class.replace('_', '-')}: {advice.title}",
        mechanism=Statement(advice.mechanism, "split"),
        time=time,
        step_share=row["step_share"],
        ceiling=ceiling,
        evidence=tuple(evidence),
        see=tuple(see),
        what_to_try=tried,
        not_when=advice.not_when,
        query=query,
        claim="advice",
        bound=_bound(facts, absent_class),
        confidence=confidence.of_class(facts, absent_class, time),
        verify=confidence.verify(advice),
    )


def _bound(facts: Facts, absent_class: str) -> Statement:
    """Which way the time of a class may be wrong."""
    if absent_class == "blocking":
        return Statement(blocking_bound(facts)[1], "bound-of-blocking")
    if absent_class == "stalled" and blocking_bound(facts)[0] == "lower":
        return Statement(
            "At most this: part of it is blocking whose producer is not known.", "bound-of-blocking"
        )
    return Statement(
        "At most this: what is no longer waited for here may be waited for elsewhere.", "ceiling"
    )


def _held_by(names: list[Row]) -> str:
    """Which copies held most blocking time by running, if copies did."""
    running = [row for row in names if row["reason"] == "running"]
    if not running or running[0]["time_class"] != "copy":
        return ""
    return "device copies" if "DtoD" in (running[0]["name"] or "") else "host copies"


def _is_beside(held: _Held, blocking_ns: int) -> bool:
    """Whether communication ran during so much of the blocking time that it likely holds it."""
    overlap_ns: int = sum(row["overlap_ns"] for row in held.beside)
    return overlap_ns >= _BESIDE * blocking_ns


def _blocking_cost(held: _Held, blocking_ns: int, bound: str) -> str:
    """The cost that held most of the blocking time."""
    if not held.blame:
        return "other"
    top = held.blame[0]
    if top["reason"] == "launch_starved":
        return "launch"
    if _is_beside(held, blocking_ns):
        return "communication"
    if top["reason"] == "stalled":
        return "unresolved" if bound == "lower" else "queue"
    if top["time_class"] == "copy" and _held_by(held.names) == "device copies":
        return "device_copy"
    return _BY_BLAME.get(top["time_class"], "other")


def _evidence(
    facts: Facts,
    where: Setting,
    absent_class: str,
    held: _Held,
    shape: Shape,
    copies: list[Row],
) -> tuple[list[Statement], list[str]]:
    said = [Statement(text, "split") for text in shape.said(absent_class)]
    see = [f"gantt-rank-{facts.at.rank}", "pieces"]
    if absent_class == "launch_starved":
        see.append("starved-host")
        said += _host(facts, where)
    if absent_class == "blocking":
        see.append("blame")
        said += _blame(held)
        if held.beside:
            top = held.beside[0]
            said.append(
                Statement(
                    "Longest communication while compute was blocked: "
                    f"{code(top['name'], 60)}, {value(top['overlap_ns'], 'ns')} in "
                    f"{plural(top['op_count'], 'op')}.",
                    "budget",
                )
            )
        said += communication(facts.top)
        if is_copy_bound(facts) or _held_by(held.names) == "host copies":
            see.append("copies")
            largest = largest_copy(facts, copies)
            if largest:
                said.append(Statement(f"Largest copies by time: {largest}.", "transfers"))
    if absent_class == "stalled" and blocking_bound(facts)[0] == "lower":
        said.append(Statement(blocking_bound(facts)[1], "bound-of-blocking"))
    return said, see


def _host(facts: Facts, where: Setting) -> list[Statement]:
    """What the launching threads did in exactly the time that is launch-starved."""
    rows = facts.rows(queries.starved_host(facts.at), facts.at.rank)
    if not rows:
        return []
    whole = value(rows[0]["starved_ns"], "ns")
    outside = sum(row["overlap_ns"] for row in rows if row["place"] == "outside calls")
    unknown = sum(row["overlap_ns"] for row in rows if row["place"] == "launch unknown")
    calls = [row for row in rows if row["place"] == "in a call"]
    said = [
        Statement(
            f"The host was outside {where.api} for {value(outside, 'ns')} of {whole}: the thread "
            "that issues the late op was in no call then.",
            "host",
        )
    ]
    if calls:
        # Several threads may be in the same function, each for pieces of its own.
        spent: dict[str, int] = {}
        for row in calls:
            spent[row["name"]] = spent.get(row["name"], 0) + row["overlap_ns"]
        most = sorted(spent.items(), key=lambda item: -item[1])[:3]
        top = ", ".join(f"{code(name)} {value(amount, 'ns')}" for name, amount in most)
        said.append(Statement(f"Inside {where.api} calls it spent most in {top}.", "host"))
    if unknown:
        said.append(
            Statement(
                f"For {value(unknown, 'ns')} the launch of the late op is not in the capture.",
                "host",
            )
        )
    late = [
        f"thread {row['launch_tid']}: {row['late_count']:,} of {plural(row['op_count'], 'op')}"
        for row in facts.rows(queries.pacing(facts.at), facts.at.rank)
        if facts.projection == "device" and row["late_count"]
    ]
    if late:
        said.append(
            Statement(f"Started less than 20 us after their launch: {'; '.join(late[:2])}.", "host")
        )
    return said


def _blame(held: _Held) -> list[Statement]:
    words = {
        "running": "running",
        "launch_starved": "launched late",
        "stalled": "stalled",
    }
    by_class = [
        f"{row['time_class']} {words.get(row['reason'], row['reason'])} "
        f"{value(row['blamed_ns'], 'ns')}"
        for row in held.blame[:3]
    ]
    if not by_class:
        return []
    said = [Statement(f"Followed back, who held it: {', '.join(by_class)}.", "blame")]
    top = [
        f"{code(row['name'], 60)} {words.get(row['reason'], row['reason'])} "
        f"{value(row['blamed_ns'], 'ns')}"
        for row in held.names[:2]
    ]
    said.append(Statement(f"By op: {', '.join(top)}.", "blame"))
    return said
