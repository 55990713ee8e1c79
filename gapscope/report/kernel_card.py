"""A step that compute kernels fill: what a timing capture cannot say of them, and what can."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gapscope.report import confidence, queries
from gapscope.report.document import Opportunity, Statement
from gapscope.report.facts import code, quantity
from gapscope.report.verdict import KERNELS
from gapscope.units import plural, value

if TYPE_CHECKING:
    from gapscope.report.facts import Facts, Row
    from gapscope.report.setting import Setting

# From this share of the window on, the kernels themselves are what to look at.
COMPUTE_BOUND = 0.8

COST = "kernels"


def build(facts: Facts, where: Setting) -> tuple[Opportunity, ...]:
    """The card where compute fills the window, else none. It has no ceiling: none is known."""
    if facts.top["compute_share"] < COMPUTE_BOUND:
        return ()
    advice = facts.costs[COST]
    query = queries.kernels(facts.at)
    rows = [row for row in facts.rows(query) if row["time_class"] == "compute"]
    tags = where.tags if rows else where.tags - {"kernel"}
    tried = [action["advice"] for action in advice.chosen(tags)]
    if {"cuda", "kernel"} <= tags:
        tried.append(
            f"{_command(rows[0])}, before the program's own command and on one rank; "
            "`--launch-skip` passes over the launches of about one step of warm-up."
        )
    return (
        Opportunity(
            id=KERNELS,
            title=advice.title,
            mechanism=Statement(advice.mechanism, "kernel-speed"),
            time=quantity(facts.top, "compute"),
            step_share=facts.top["compute_share"],
            ceiling=None,
            evidence=tuple(_evidence(facts, rows)),
            see=("kernels", f"gantt-rank-{facts.at.rank}"),
            what_to_try=tuple(tried),
            not_when=advice.not_when,
            query=query,
            claim="advice",
            bound=Statement(
                "None is known: nothing here says how fast these kernels could be.", "kernel-speed"
            ),
            confidence=confidence.of_kernels(facts),
            verify=confidence.verify(advice),
        ),
    )


def _evidence(facts: Facts, rows: list[Row]) -> list[Statement]:
    if not rows:
        return [
            Statement("No kernel by name reaches 1 %: graphs stand here as one record.", "classes")
        ]
    top = ", ".join(
        f"{code(row['name'], 60)} ({row['op_class']}) {value(row['step_share'], 'share')} in "
        f"{plural(row['op_count'], 'op')}"
        for row in rows[:3]
    )
    return [
        Statement(f"Most work volume, of the {facts.noun}: {top}.", "classes"),
        Statement(
            "No efficiency, no roofline and no gain is claimed: that needs counters of the "
            "kernels, not their durations.",
            "kernel-speed",
        ),
    ]


def _command(row: Row) -> str:
    """Nsight Compute for a few launches of one kernel; the name carries nothing for a shell."""
    return (
        f"`ncu --set full --kernel-name regex:{function_name(row['name'])} "
        f"--launch-skip {row['op_count']} --launch-count 3 -o kernel`"
    )


def function_name(name: str) -> str:
    """The function's own name, as Nsight Compute matches it: no type, namespace or arguments."""
    plain = name.replace("(anonymous namespace)::", "")
    shorter = None
    while shorter != plain:
        shorter, plain = plain, re.sub(r"<[^<>]*>", "", plain)
    stem = plain.split("(", maxsplit=1)[0].rstrip()
    own = stem.rsplit(" ", 1)[-1].rsplit("::", 1)[-1]
    return re.sub(r"[^A-Za-z0-9_]", ".", own) or "."
