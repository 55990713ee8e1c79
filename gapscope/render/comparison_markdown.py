"""A comparison for a pull request: what fits in a comment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapscope.render import comparison_tables as tables
from gapscope.render import markdown
from gapscope.units import plural

if TYPE_CHECKING:
    from gapscope.compare.document import Comparison
    from gapscope.report.document import Table

# Rows of a table that are read in a comment; the sum and what it leaves come in any case.
_ROWS = 16


def render(document: Comparison) -> str:
    """Verdict, what differs, and the ledgers of the shown rank."""
    parts = [f"# GapScope: {markdown.text(document.b)} against {markdown.text(document.a)}", ""]
    parts += [f"**{markdown.text(document.headline.text)}**", ""]
    for section in tables.sections(document):
        if section.id == "run":
            # Its step stands in the table of steps; the page has its ledgers.
            continue
        parts += [f"## {section.title}", ""]
        parts += markdown.statements(section.statements)
        for table in section.tables:
            parts += _table(table)
    statuses = ", ".join(f"{claim.id} {claim.status.value}" for claim in document.claims)
    parts += ["## Claim status", "", f"{statuses}.", ""]
    return markdown.cut("\n".join(parts))


def _table(table: Table) -> list[str]:
    rows = table.rows
    notes: tuple[str, ...] = table.notes
    if table.id == "alike":
        return [f"{plural(len(rows), 'check')} more {'is' if len(rows) == 1 else 'are'} alike.", ""]
    if len(rows) > _ROWS:
        notes = (*notes, f"{len(rows) - _ROWS} more rows are in the page and in JSON.")
        rows = (*rows[: _ROWS - 2], *rows[-2:])
    lines = [f"**{markdown.text(table.title)}**", "", markdown.text(table.caption), ""]
    return [
        *lines,
        *markdown.grid(table.columns, rows),
        "",
        *(f"{markdown.text(n)}\n" for n in notes),
    ]
