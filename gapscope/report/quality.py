"""Section 2: what the capture can and cannot support."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapscope.report import contract, model_queries, queries
from gapscope.report.document import Column, Section, Statement, Table
from gapscope.report.facts import table
from gapscope.units import plural

if TYPE_CHECKING:
    from gapscope.report.facts import Facts, Row

# So many ranks are told of, in their order.
_SHOWN = 128

_CHECKS = (
    Column("status", "status", "status"),
    Column("ranks", "rank", "text", "`run`: the capture as a whole"),
    Column("check_name", "check", "code"),
    Column("detail", "what was seen"),
    Column("forbids", "what this prevents us from saying"),
)

_CAPTURED = (
    Column("rank", "rank", "id"),
    Column("hostname", "host"),
    Column("device_name", "device"),
    Column("device_uuid", "device UUID", "code"),
    Column("source_path", "source", "code"),
    Column("source_format", "format"),
    Column("tool_version", "tool"),
    Column("cuda_driver", "CUDA driver"),
    Column("nccl_version", "NCCL"),
    Column("rank_source", "rank from"),
)


def counts(facts: Facts) -> tuple[tuple[str, int], ...]:
    """How many checks have each status, worst first."""
    return tuple(
        (status, sum(1 for row in facts.quality if row["status"] == status))
        for status in ("fail", "warn", "info", "ok")
    )


def concerns(facts: Facts, row: Row) -> bool:
    """Whether a check speaks of the whole run or of the rank that the verdict is about."""
    return facts.focus is None or bool(
        {"run", str(facts.focus["rank"])} & set(row["ranks"].split(", "))
    )


def section(facts: Facts) -> Section:
    """Checks, worst first, and who was captured."""
    said = [f"{plural(count, 'check')} {status}" for status, count in counts(facts) if count] or [
        "no check ran"
    ]
    statements = [Statement(f"{', '.join(said)}.", "capture")]
    statements += [
        Statement(
            f"Ranks {ranks} share one device: they contend for it, so no budget below is that "
            "of a rank that has its device to itself.",
            "capture",
        )
        for ranks in facts.shared
    ]
    statements += contract.statements(facts)
    shown = facts.ranks[:_SHOWN]
    return Section(
        id="quality",
        title="Capture quality",
        statements=tuple(statements),
        tables=(
            table(
                "quality-checks",
                "Checks",
                "Every check, worst first, with what it prevents this report from saying.",
                "capture",
                queries.QUALITY,
                facts.quality,
                _CHECKS,
            ),
            table(
                "captured",
                "Captured ranks",
                "One row a rank, as the source states it.",
                "capture",
                queries.RANKS
                if len(shown) == len(facts.ranks)
                else f"{queries.RANKS}\nLIMIT {_SHOWN}",
                shown,
                _CAPTURED,
                row_ids=tuple(f"captured-rank-{row['rank']}" for row in shown),
                notes=()
                if len(shown) == len(facts.ranks)
                else (f"The first {_SHOWN} of {plural(len(facts.ranks), 'rank')}.",),
                is_open=len(facts.ranks) <= 16,
            ),
            *contract.tables(facts),
            *_model(facts),
        ),
    )


def _model(facts: Facts) -> tuple[Table, ...]:
    """Checks of the dependency model, where it looked at anything."""
    if not facts.model.checks:
        return ()
    return (
        table(
            "model-checks",
            "Checks of the dependency model",
            "Whether the bound, the classes and the what-ifs may speak. Where a check speaks of "
            "several steps, the worst one is told.",
            "model-checks",
            model_queries.CHECKS,
            facts.model.checks,
            (
                Column("status", "status", "status"),
                Column("check_name", "check", "code"),
                Column("steps", "steps"),
                Column("detail", "what was seen"),
                Column("withholds", "withholds"),
            ),
        ),
    )
