"""A comparison as a page: one file, no network, complete without scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapscope.render import comparison_tables as tables
from gapscope.render import html

if TYPE_CHECKING:
    from gapscope.compare.document import Comparison


def render(document: Comparison) -> str:
    """The whole page."""
    return html.fill(
        "compare.html.jinja",
        document=document,
        sections=tables.sections(document),
        claim_numbers={claim.id: place for place, claim in enumerate(document.claims, start=1)},
        sql_shell="`duckdb compare.duckdb`, which `gapscope compare A B -o compare.duckdb` writes",
    )
