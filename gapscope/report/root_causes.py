"""Phenomenon, mechanism and knob, as far as call stacks and the program's source allow."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gapscope.report.document import Column, Opportunity, Statement, Table
from gapscope.report.facts import THRESHOLD, table
from gapscope.units import plural, value

if TYPE_CHECKING:
    from gapscope.report.facts import Facts, Row
    from gapscope.report.queries import Window

_LINK = "FROM v1.stack_link WHERE rank = {}"
_ANY = """\
SELECT
    (SELECT count(*) FROM v1.call_stack) + (SELECT count(*) FROM v1.python_frame) AS row_count,
    (SELECT count(*) FROM v1.declared WHERE section = 'run' AND item = 'source') AS source_count"""

# The card in which the cost of a phenomenon is established.
_CARDS = {
    "launch_starved": ("finding-launch-starved", "finding-r1"),
    "blocking": ("finding-blocking",),
}

_WAS = {"running": "running", "launch_starved": "launched late", "stalled": "stalled"}

# What is listed, at most and at least.
_ROWS = 20
_SHARE = 0.001


def _query(window: Window, *, by_line: bool) -> str:
    """Phenomena of a window, by line where these may be named."""
    return f"""\
SELECT
    c.phenomenon, c.reason, {"c.frame" if by_line else "NULL"} AS line,
    sum(c.total_ns)::BIGINT AS total_ns, sum(c.piece_count)::BIGINT AS piece_count,
    sum(c.total_ns) / any_value(b.step_ns) AS step_share
FROM v1.root_cause AS c
INNER JOIN v1.step_budget AS b
    ON c.rank = b.rank AND c.projection = b.projection AND c.step_id = b.step_id
WHERE c.{window.where.replace(" AND ", " AND c.")}
GROUP BY ALL
HAVING step_share >= {_SHARE}
ORDER BY total_ns DESC, c.phenomenon, c.reason, line
LIMIT {_ROWS}"""


def build(
    facts: Facts, cards: tuple[Opportunity, ...]
) -> tuple[list[Statement], tuple[Table, ...]]:
    """The link rate and the table; nothing where the capture has no stacks."""
    if facts.window is None:
        return [], ()
    known = facts.rows(_ANY)[0]
    if not known["row_count"]:
        return [], ()
    link = facts.rows(_LINK.format(facts.at.rank), facts.at.rank)
    if not link or not link[0]["linked_count"]:
        return [
            Statement(
                f"No call stack could be linked to a launch of rank {facts.at.rank}: threads, "
                "numbers of launches or names of kernels do not agree.",
                "stacks",
            )
        ], ()
    has_source = known["source_count"] > 0
    query = _query(facts.at, by_line=has_source)
    said = [_linked(link[0])]
    if not has_source:
        said.append(
            Statement(
                "The program's source is not declared (`source` in [run] of gapscope.toml): root "
                "causes stop at phenomena, no mechanism and no knob is named.",
                "stacks",
            )
        )
    return said, (
        table(
            "root-causes",
            f"Root causes, {facts.usual} of rank {facts.at.rank}",
            "Time without compute by the line that launched what compute waited for. A phenomenon "
            "is measured; its mechanism is inferred from a linked stack; a knob is named only "
            f"where a card above {value(THRESHOLD, 'share')} of the {facts.noun} establishes the "
            "cost. A stack says where a launch was made, not why it was late.",
            "stacks",
            query,
            [
                _row(row, cards, link[0], has_source=has_source)
                for row in facts.rows(query, facts.at.rank)
            ],
            (
                Column("phenomenon", "phenomenon"),
                Column("total_ns", "time", "ns"),
                Column("step_share", f"of {facts.noun}", "share"),
                Column("piece_count", "pieces", "count"),
                Column("mechanism", "mechanism: launched at", "code"),
                Column("knob", "knob"),
                Column("status", "known"),
            ),
        ),
    )


def _linked(link: Row) -> Statement:
    if link["checked_count"] == link["linked_count"]:
        checked = "all of them checked"
    elif link["checked_count"]:
        checked = f"{link['checked_count']:,} of them checked by the kernel's name"
    else:
        checked = "none of them checked: the table of stacks names no kernels (column `name`)"
    launches = plural(link["launch_count"], "launch", "launches")
    return Statement(
        f"Call stacks: {link['linked_count']:,} of {launches} "
        f"({value(link['link_rate'], 'share')}) are linked, {checked}. That is not the share of "
        "ops whose launch is known (section 2).",
        "stacks",
    )


def _row(row: Row, cards: tuple[Opportunity, ...], link: Row, *, has_source: bool) -> Row:
    phenomenon = row["phenomenon"].replace("_", "-")
    if row["phenomenon"] == "blocking":
        phenomenon += f", held by an op that was {_WAS[row['reason']]}"
    named = {
        "phenomenon": phenomenon,
        "total_ns": row["total_ns"],
        "step_share": row["step_share"],
        "piece_count": row["piece_count"],
        "mechanism": "",
        "knob": "",
        "status": "measured",
    }
    if not has_source or row["line"] is None:
        return named
    card = next((card for card in cards if card.id in _CARDS[row["phenomenon"]]), None)
    is_checked = link["checked_count"] == link["linked_count"]
    return {
        **named,
        "mechanism": row["line"],
        "knob": _knob(card),
        "status": "inferred" if is_checked else "unverified",
    }


def _knob(card: Opportunity | None) -> str:
    """The first thing to try of the card that establishes the cost, without its explanation."""
    if card is None or not card.what_to_try:
        return ""
    return re.split(r": |\. ", card.what_to_try[0], maxsplit=1)[0].rstrip(".")
