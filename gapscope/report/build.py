"""Run to document. Numbers come out of the views; here they get words and an order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gapscope._version import __version__
from gapscope.report import (
    budget,
    claims,
    facts,
    model,
    opportunities,
    quality,
    queries,
    ranks,
    verdict,
)
from gapscope.report.document import Document, Header, Section, Statement
from gapscope.schema.tables import SCHEMA_VERSION
from gapscope.schema.views import SQL_VERSION
from gapscope.units import listed, plain, value

if TYPE_CHECKING:
    from gapscope.run import Run


def build(run: Run) -> Document:
    """The report of a run.

    Raises GapscopeError `claim-without-status` where a sentence has no row in section 6.
    """
    known = facts.load(run)
    copies = known.rows(queries.COPIES)
    cards = opportunities.build(known, copies)
    first = verdict.build(known, cards, copies)
    if first.is_withheld:
        cards = ()
    cards = tuple(replace(card, labels=first.labels) for card in cards)
    missing = () if first.is_withheld or known.model.has_bound else (model.no_bound(known.model),)
    sections = (
        Section(
            "verdict",
            "Verdict",
            (first.headline, *first.statements),
            figures=() if first.is_withheld else (budget.waterfall(known),),
            missing=missing,
        ),
        quality.section(known),
        budget.section(known),
        ranks.section(known, copies),
        opportunities.section(known, cards),
        Section(
            "claims",
            "Claim status",
            (
                Statement(
                    "What this report asserts, how well it is known, and how to show that it is "
                    "wrong.",
                    "capture",
                ),
            ),
        ),
    )
    stated = claims.used(first, sections, cards)
    claims.check(stated, first, sections, cards)
    return Document(
        header=_header(known),
        verdict=first,
        sections=sections,
        opportunities=cards,
        claims=stated,
        quality_counts=quality.counts(known),
    )


def _header(known: facts.Facts) -> Header:
    def distinct(key: str) -> list[str]:
        return list(dict.fromkeys(str(row[key]) for row in known.ranks if row[key] is not None))

    world = distinct("world_size")
    numbers = [row["rank"] for row in known.ranks]
    pairs = [
        ("ranks", listed(numbers) + (f" of {world[0]}" if len(world) == 1 else "")),
        ("hosts", listed(distinct("hostname"))),
        ("devices", listed(distinct("device_name"))),
        ("captured with", listed(distinct("source_format"))),
        ("tool", listed(distinct("tool_version"))),
        ("CUDA driver", listed(distinct("cuda_driver"))),
        ("NCCL", listed(distinct("nccl_version"))),
        ("steps from", listed(sorted(set(known.anchors.values())))),
    ]
    for row in known.ranks[:16]:
        digest = row["source_digest"] or "no digest"
        size = value(row["source_bytes"], "B")
        pairs.append((f"input of rank {row['rank']}", f"{row['source_path']}, {size}, {digest}"))
    if len(known.ranks) > 16:
        pairs.append(("further inputs", f"{len(known.ranks) - 16}; `FROM v1.rank` lists them"))
    return Header(
        run_name=plain(known.run.path.resolve().name),
        gapscope_version=__version__,
        sql_version=SQL_VERSION,
        schema_version=SCHEMA_VERSION,
        rank_count=len(known.ranks),
        facts=tuple((label, text) for label, text in pairs if text),
    )
