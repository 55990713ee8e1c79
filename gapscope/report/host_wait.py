"""What the host's waiting, and its launches of whole graphs, do and do not say about the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapscope.report import queries
from gapscope.report.document import Column, Statement, Table
from gapscope.report.facts import code, table
from gapscope.units import plural, value

if TYPE_CHECKING:
    from gapscope.report.facts import Facts
    from gapscope.report.queries import Window


def waits(window: Window) -> str:
    """Calls of one window in which the host waits for the device, the longest first."""
    return f"""\
SELECT name, call_count, busy_ns, idle_ns, waited_ns, sum(idle_ns) OVER ()::BIGINT AS all_idle_ns
FROM v1.host_sync_time
WHERE {window.where}
ORDER BY idle_ns DESC, busy_ns DESC, name"""


def uncalled(window: Window) -> str:
    """How long one window goes on after the last call that was recorded, ns."""
    return f"""\
SELECT end_ns - (SELECT max(end_ns) FROM v1.api_call WHERE rank = {window.rank}) AS uncalled_ns
FROM v1.step_window
WHERE {window.where}"""


def statements(facts: Facts) -> list[Statement]:
    """Waiting beside an idle device, and launch-starved time that ends with a graph."""
    said = []
    rows = facts.rows(waits(facts.at), facts.at.rank)
    if rows:
        calls = ", ".join(f"{code(row['name'])} {value(row['busy_ns'], 'ns')}" for row in rows[:3])
        text = (
            f"The host waits for the device in {calls}; the device is idle for "
            f"{value(rows[0]['all_idle_ns'], 'ns')} of it at most (functions added up). The rest "
            "waits for work that runs; but then nothing is launched ahead, and what is late "
            "for that after it is launch-starved."
        )
        uncalled_ns = facts.rows(uncalled(facts.at), facts.at.rank)[0]["uncalled_ns"]
        if facts.projection == "device" and uncalled_ns > 0:
            # The capture ended with the host's part of the step: it may have waited for the rest.
            text += f" Calls of its last {value(uncalled_ns, 'ns')} were not recorded."
        said.append(Statement(text, "host"))
    (graph,) = facts.rows(queries.graph_starved(facts.at), facts.at.rank)
    if graph["graph_ns"]:
        said.append(
            Statement(
                f"{value(graph['graph_ns'], 'ns')} of the launch-starved time end with the launch "
                f"of a CUDA graph ({plural(graph['piece_count'], 'piece')}): one call starts all "
                "of its nodes, so nothing is concluded from it about the cost of launches.",
                "host",
            )
        )
    return said


def tables(facts: Facts, where: str) -> tuple[Table, ...]:
    """Waiting by function."""
    rows = facts.rows(waits(facts.at), facts.at.rank)
    if not rows:
        return ()
    return (
        table(
            "host-waits",
            f"Calls in which the host waits for the device, {where}",
            "Idle is the part in which the device ran nothing: an upper bound of what the wait "
            "can cost.",
            "host",
            waits(facts.at),
            rows,
            (
                Column("name", "function", "code"),
                Column("call_count", "calls", "count"),
                Column("busy_ns", "waiting", "ns", "union of the calls"),
                Column("idle_ns", "device idle in it", "ns"),
                Column("waited_ns", "device busy in it", "ns"),
            ),
            is_open=False,
        ),
    )
