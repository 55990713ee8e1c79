"""A comparison as tables, which every renderer lays out in its own way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapscope.compare import queries
from gapscope.report.document import (
    Bar,
    Cell,
    Column,
    Quantity,
    Section,
    Statement,
    Table,
    Waterfall,
)

if TYPE_CHECKING:
    from gapscope.compare.document import Comparison, Ledger, Line, StepLine
    from gapscope.compare.intervals import Interval

_MOST_RANKS = 64
_SAID = {
    "bootstrap": "from, to: 95 % bootstrap interval over steps.",
    "range": "from, to: the range of few steps, least less most to most less least.",
    "edges": "from, to: what one launch more or less in each capture makes of it.",
}


def sections(document: Comparison) -> tuple[Section, ...]:
    """Everything but the claims, in the order that it is read in."""
    verdict = Section("verdict", "Verdict", document.statements)
    compared = Section("compared", "What is compared", (), tables=_checks(document))
    if not document.is_comparable:
        return (verdict, compared)
    own = [item for item in document.ledgers if item.rank == document.shown_rank]
    charged = [item for item in own if item.claim == "charge"]
    of_run = [item for item in document.ledgers if item.rank is None]
    drawn = bridge(document)
    listed = volumes(document)
    return (
        Section(
            "verdict", "Verdict", document.statements, figures=(drawn,) if drawn is not None else ()
        ),
        compared,
        Section(
            "steps",
            "Step and its parts",
            (),
            tables=(steps(document), *(ledger(item) for item in own if item not in charged)),
        ),
        Section(
            "charges",
            "Where it shows",
            (
                Statement(
                    f"Of rank {document.shown_rank}: where a difference shows is not where its "
                    "cause is.",
                    "charge",
                ),
            ),
            tables=(*map(ledger, charged), *((listed,) if listed is not None else ())),
        ),
        Section(
            "run",
            "The run's step",
            (
                Statement(
                    "The run's step is that of its slowest rank, which may be another one in every "
                    "step.",
                    "ledger",
                ),
            ),
            tables=tuple(map(ledger, of_run)),
        ),
    )


def _checks(document: Comparison) -> tuple[Table, ...]:
    both = (checks(document, alike=False), checks(document, alike=True))
    return tuple(table for table in both if table.rows)


def subject(rank: int | None) -> str:
    """Whose step it is."""
    return "the run" if rank is None else f"rank {rank}"


def checks(document: Comparison, *, alike: bool) -> Table:
    """What the runs have in common, or what not."""
    return Table(
        id="alike" if alike else "checks",
        title="Alike" if alike else "Different, limited or unknown",
        caption="What both captures state or do in the same way."
        if alike
        else "forbids: no comparison; limits: what follows cannot be said; differs: said, and may "
        "be what was changed; unknown: one capture does not tell.",
        columns=(
            Column("verdict", "verdict", "status"),
            Column("item", "what"),
            Column("a", "A"),
            Column("b", "B"),
            *(() if alike else (Column("detail", "what follows"),)),
        ),
        rows=tuple(
            (check.verdict, check.item, check.a, check.b, *(() if alike else (check.detail,)))
            for check in document.checks
            if (check.verdict == "same") == alike
        ),
        query=queries.CHECKS,
        claim="comparable",
        is_open=not alike,
    )


def steps(document: Comparison) -> Table:
    """The step of the run and of each rank."""
    kind = document.steps[0].median_interval.kind
    shown = document.steps
    if len(shown) > _MOST_RANKS:
        run, *ranks = shown
        ranks.sort(key=lambda line: -abs(line.median_delta_ns))
        shown = (run, *ranks[:_MOST_RANKS])
    left_out = len(document.steps) - len(shown)
    noun = "run's step is" if document.unit == "step" else "run's unit of work is"
    return Table(
        id="step-by-rank",
        title="Step by rank" if document.unit == "step" else "Unit of work by rank",
        caption=f"Medians, with number, least and most; the {noun} the longest over ranks. "
        + _SAID[kind],
        columns=(
            Column("rank", "step of"),
            Column("a", "A", "ns"),
            Column("b", "B", "ns"),
            Column("delta", "B less A", "+ns"),
            Column("low", "from", "+ns"),
            Column("high", "to", "+ns"),
            Column("share", "of A", "share"),
            Column("mean_delta", "means", "+ns", "The same difference of means."),
        ),
        rows=tuple(_step(line) for line in shown),
        query="FROM pair.step_delta ORDER BY subject NULLS FIRST",
        claim="difference",
        notes=(f"{left_out:,} more ranks changed by less.",) if left_out else (),
    )


def _step(line: StepLine) -> tuple[Cell, ...]:
    return (
        subject(line.rank),
        Quantity(line.a_median_ns, "ns", line.a_count, line.a_low_ns, line.a_high_ns),
        Quantity(line.b_median_ns, "ns", line.b_count, line.b_low_ns, line.b_high_ns),
        line.median_delta_ns,
        line.median_interval.low_ns,
        line.median_interval.high_ns,
        line.median_delta_share,
        line.mean_delta_ns,
    )


def ledger(item: Ledger) -> Table:
    """Parts, their sum, and what the sum leaves."""
    is_charge = item.lines[0].wait_delta_ns is not None
    sure = next((line.interval for line in item.lines if line.interval is not None), None)
    columns = [
        Column("part", "part", "code" if item.id.startswith("kernel") else "text"),
        Column("a", "A", "ns"),
        Column("b", "B", "ns"),
        Column("delta", "B less A", "+ns"),
    ]
    if sure is not None:
        columns += [Column("low", "from", "+ns"), Column("high", "to", "+ns")]
    if is_charge:
        columns += [
            Column("computes", "it computes", "+ns"),
            Column("waits", "waited for", "+ns"),
        ]
    else:
        columns += [Column("median_delta", "medians", "+ns", "The same in the median step.")]
    keys = tuple(column.key for column in columns)
    rows = [_line(line, keys) for line in (*item.lines, item.total)]
    rows.append(tuple(_residual(item, key) for key in keys))
    return Table(
        id=item.id,
        title=f"{item.title}, {subject(item.rank)}",
        caption=f"{item.caption} Means. {_SAID[sure.kind] if sure is not None else ''}".rstrip(),
        columns=tuple(columns),
        rows=tuple(rows),
        query=item.query,
        claim=item.claim,
        notes=item.notes,
    )


def _line(line: Line, keys: tuple[str, ...]) -> tuple[Cell, ...]:
    low, high = _ends(line.interval)
    cells: dict[str, Cell] = {
        "part": line.label,
        "a": line.a_ns,
        "b": line.b_ns,
        "delta": line.delta_ns,
        "low": low,
        "high": high,
        "computes": line.compute_delta_ns,
        "waits": line.wait_delta_ns,
        "median_delta": line.median_delta_ns,
    }
    return tuple(cells[key] for key in keys)


def _residual(item: Ledger, key: str) -> Cell:
    cells: dict[str, Cell] = {
        "part": "residual",
        "delta": item.residual_ns,
        "median_delta": item.median_residual_ns,
    }
    return cells.get(key)


def _ends(interval: Interval | None) -> tuple[float | None, float | None]:
    return (None, None) if interval is None else (interval.low_ns, interval.high_ns)


def volumes(document: Comparison) -> Table | None:
    """Device ops by work volume."""
    item = document.volumes
    if item is None or not item.lines:
        return None
    return Table(
        id="volumes",
        title="Device ops by work volume",
        caption=item.caption,
        columns=(
            Column("name", "device op", "code"),
            Column("class", "class"),
            Column("a_launches", "launches A"),
            Column("b_launches", "launches B"),
            Column("a", "A", "ns"),
            Column("b", "B", "ns"),
            Column("delta", "B less A", "+ns"),
        ),
        rows=tuple(
            (
                line.name,
                line.op_class,
                _count(line.a_launches),
                _count(line.b_launches),
                line.a_ns,
                line.b_ns,
                line.delta_ns,
            )
            for line in item.lines
        ),
        query=item.query,
        claim=item.claim,
        notes=(f"{item.left_out} more changed by less.",) if item.left_out else (),
    )


def _count(launches: float | None) -> str | None:
    return None if launches is None else f"{launches:g}"


def bridge(document: Comparison) -> Waterfall | None:
    """From A's mean step over what changed to B's, on the shown rank."""
    own = [item for item in document.ledgers if item.rank == document.shown_rank]
    best = next(
        (item for item in own if item.id.startswith("model") and not item.is_provisional), None
    )
    best = best or next((item for item in own if item.id.startswith("split")), None)
    if best is None:
        return None
    start, end = best.total.a_ns or 0.0, best.total.b_ns or 0.0
    bars = [Bar("A", "observed", 0, round(start), 1.0)]
    at = start
    for line in best.lines:
        change = line.delta_ns or 0.0
        if change:
            sign = "+" if change > 0 else "−"  # noqa: RUF001 -- a minus
            bars.append(
                Bar(
                    f"{sign} {line.label}",
                    line.time_class,
                    round(min(at, at + change)),
                    round(abs(change)),
                    abs(change) / start if start else 0.0,
                )
            )
        at += change
    bars.append(Bar("B", "observed", 0, round(end), end / start if start else 0.0))
    return Waterfall(
        id="bridge",
        title=f"From A to B, rank {document.shown_rank}",
        caption="Means over the steps that count; every bar begins where the one before ends.",
        bars=tuple(bars),
        query=best.query,
        claim=best.claim,
    )
