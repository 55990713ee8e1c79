"""Gantt figures: one step of one rank, at a grain at which its boxes can be drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapscope.report import gantt_queries
from gapscope.report.document import Gantt, Mark
from gapscope.units import plural, value

if TYPE_CHECKING:
    from gapscope.report.facts import Facts, Row
    from gapscope.report.queries import Window

MARK_LIMIT = 2000
# All Gantt figures of a page together; the data of a report stays below 1 MB.
MARK_BUDGET = 6000
# Fewer boxes than this no longer show a step.
MARK_FLOOR = 300
# A slot no wider than a pixel of a wide screen hides nothing that could be seen.
_FINEST = 2000


def figure(
    facts: Facts, window: Window, length_ns: int, limit: int, *, is_open: bool
) -> Gantt | None:
    """The figure with at most `limit` boxes; small ops share boxes only where they must."""
    known = facts.model
    grain, query, rows = _finest(facts, window, length_ns, limit)
    if not rows:
        return None
    lanes = list(dict.fromkeys((row["lane"], row["lane_id"]) for row in rows))
    place = {lane: index for index, lane in enumerate(lanes)}
    shared = [row["op_count"] for row in rows if row["op_count"] > 1]
    notes = []
    if shared:
        notes.append(
            f"{plural(sum(shared), 'item')} shorter than {value(grain, 'ns')} share "
            f"{plural(len(shared), 'box', 'boxes')}: a box is as wide as its items are "
            "long together, follows its first start and takes the name of its longest item."
        )
    notes.append(
        "Host calls are those of the threads that launch, inside this window; the tracer's clock "
        "relates them to the device."
    )
    if known.has_bound:
        notes.append(
            "Rows of T_lb are the schedule of the bound on the same axis: from the start of the "
            "window, in the order in which the host issued."
        )
    noun = f"step {window.step_id}" if window.projection == "device" else "the whole capture"
    return Gantt(
        id=f"gantt-rank-{window.rank}",
        title=f"Timeline of {noun}, rank {window.rank}",
        caption=f"{noun[0].upper()}{noun[1:]} of rank {window.rank}, {value(length_ns, 'ns')}: "
        f"where compute is absent and why (first row), what each stream ran, "
        f"{'how the bound would run it, ' if known.has_bound else ''}what the launching threads "
        "called.",
        rank=window.rank,
        step_id=window.step_id,
        window_ns=length_ns,
        rows=tuple(_label(lane, lane_id) for lane, lane_id in lanes),
        marks=tuple(
            Mark(
                row=place[row["lane"], row["lane_id"]],
                start_ns=row["start_ns"],
                end_ns=row["end_ns"],
                time_class=row["time_class"],
                name=row["name"] or ("" if row["lane"] == 0 else "unknown"),
                count=row["op_count"],
                busy_ns=row["busy_ns"],
                node=row["node"] or "",
            )
            for row in rows
        ),
        query=query,
        claim="gap-classes" if known.has_classes else "split",
        notes=tuple(notes),
        is_open=is_open,
    )


def _finest(facts: Facts, window: Window, length_ns: int, limit: int) -> tuple[int, str, list[Row]]:
    """The finest grain at which there are no more boxes than `limit`, and its boxes.

    Without a grain, or else one of doublings, which are halved: every try is a query.
    """
    known = facts.model

    def at(grain: int) -> tuple[int, str, list[Row]]:
        query = gantt_queries.gantt(
            window, grain, has_bound=known.has_bound, has_classes=known.has_classes
        )
        return grain, query, facts.rows(query, window.rank)

    whole = at(0)
    if len(whole[2]) <= limit:
        return whole
    finest = max(length_ns // _FINEST, 1)
    # A slot as long as the window has a box a lane and class.
    too_fine, enough = -1, max(length_ns // finest, 1).bit_length()
    found = at(finest << enough)
    while enough - too_fine > 1:
        middle = (too_fine + enough) // 2
        tried = at(finest << middle)
        if len(tried[2]) <= limit:
            enough, found = middle, tried
        else:
            too_fine = middle
    return found


def _label(lane: int, lane_id: int) -> str:
    if lane == 0:
        return "no compute"
    if lane == 2:
        return f"T_lb: {('engine', 'collectives', 'copies')[lane_id]}"
    return f"stream {lane_id}" if lane == 1 else f"thread {lane_id}"
