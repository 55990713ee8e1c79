"""What the run says, read once: rows of the queries, and the window that the report is about."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gapscope.report import actions, model, queries
from gapscope.report.document import Cell, Column, Quantity, Table
from gapscope.units import plain

if TYPE_CHECKING:
    from gapscope.run import Run

Row = dict[str, Any]

# Below this share of the step nothing is called a finding.
THRESHOLD = 0.01

# With less compute than this a ceiling is thousands of percent, which nobody can act on.
COMPUTE_FLOOR = 0.1


@dataclass(frozen=True, slots=True)
class Facts:
    """Rows by name. `focus` is the rank that stands for the run, None without device ops.

    It is the one with the longest step where the dependency model gives a bound, else the one whose
    compute is absent longest. `projection` is `device` where there are steps outside the boundary,
    else `capture`.
    """

    run: Run
    ranks: list[Row]
    op_counts: list[Row]
    quality: list[Row]
    shared: list[str]
    projection: str
    summary: list[Row]
    steps: list[Row]
    waits: dict[int, Row]
    focus: Row | None
    window: queries.Window | None
    anchors: dict[int, str]
    model: model.Model
    costs: dict[str, actions.Advice]
    perturbation: list[Row]
    parts: dict[int, str]
    # Several sections may ask the same.
    asked: dict[str, list[Row]] = field(default_factory=dict)

    def rows(self, query: str, rank: int | None = None) -> list[Row]:
        """Rows of one more query; with `rank`, of one that asks about no other rank."""
        if query not in self.asked:
            self.asked[query] = _rows(self.run, query, rank)
        return [dict(row) for row in self.asked[query]]

    @property
    def top(self) -> Row:
        """`focus`, where a caller knows that there is one."""
        if self.focus is None:
            raise LookupError("no rank of this run has a budget")
        return self.focus

    @property
    def at(self) -> queries.Window:
        """`window`, where a caller knows that there is one."""
        if self.window is None:
            raise LookupError("no rank of this run has a budget")
        return self.window

    @property
    def summary_query(self) -> str:
        """The query of `summary`."""
        return queries.summary(self.projection, self.model.shown_step_id)

    @property
    def noun(self) -> str:
        """What a window is called in a sentence."""
        return "step" if self.projection == "device" else "capture"

    @property
    def usual(self) -> str:
        """The window that stands for a rank, in a sentence."""
        if self.model.has_bound:
            return f"step {self.at.step_id}"
        return "median step" if self.projection == "device" else "capture"

    @property
    def has_ceiling(self) -> bool:
        """Whether a speed-up in percent says something: of a step, and one that computes."""
        return self.projection == "device" and self.top["compute_share"] >= COMPUTE_FLOOR

    @property
    def is_perturbed(self) -> bool:
        """Whether profiling slowed the run down materially: every time and ceiling says so."""
        return any(row["verdict"] == "perturbed" for row in self.perturbation)

    @property
    def is_inferred(self) -> bool:
        """Whether the steps of the rank in focus are a period that only recurred."""
        return (
            self.focus is not None
            and self.projection == "device"
            and self.anchors.get(self.focus["rank"], "").endswith("_sequence")
        )


def load(run: Run) -> Facts:
    """Read what every section needs."""

    def rows(query: str) -> list[Row]:
        return _rows(run, query)

    op_counts = rows(queries.DEVICE_OPS)
    steps = rows(queries.STEPS)
    projection = "device"
    summary: list[Row] = []
    known = model.load(rows)
    if any(row["op_count"] for row in op_counts):
        summary = rows(queries.summary("device", known.shown_step_id))
        if not summary:
            projection = "capture"
            summary = rows(queries.summary("capture"))
    focus = summary[0] if summary else None
    window = None
    if focus is not None:
        window = queries.Window(focus["rank"], projection, focus["median_step_id"])
    if known.has_bound:
        focus = next(row for row in summary if row["rank"] == known.run["rank"])
        window = queries.Window(focus["rank"], "device", known.run["step_id"])
    return Facts(
        run=run,
        ranks=rows(queries.RANKS),
        op_counts=op_counts,
        quality=rows(queries.QUALITY),
        shared=[row["ranks"] for row in rows(queries.SHARED_DEVICES)],
        projection=projection,
        summary=summary,
        steps=steps,
        waits={row["rank"]: row for row in rows(queries.WAITS)},
        focus=focus,
        window=window,
        anchors={row["rank"]: row["source"] for row in rows(queries.ANCHORS)},
        model=known,
        costs=actions.read(rows),
        perturbation=rows(queries.PERTURBATION),
        parts={row["rank"]: row["part"] for row in rows(queries.RANK_PARTS)},
    )


def _rows(run: Run, query: str, rank: int | None = None) -> list[Row]:
    """Rows as dictionaries; names of a capture may hold control characters, which end here."""
    return [
        {key: plain(cell) if isinstance(cell, str) else cell for key, cell in row.items()}
        for row in run.sql(query, rank=rank).to_dicts()
    ]


def quantity(row: Row, measure: str) -> Quantity:
    """The median step's value of a measure, with its range over the steps."""
    return Quantity(
        row[f"{measure}_ns"],
        "ns",
        row["step_count"],
        row[f"{measure}_min_ns"],
        row[f"{measure}_max_ns"],
    )


def table(
    name: str,
    title: str,
    caption: str,
    claim: str,
    query: str,
    rows: list[Row],
    columns: tuple[Column, ...],
    *,
    row_ids: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
    is_open: bool = True,
) -> Table:
    """A table of a query's rows; columns pick keys, nothing is worked out here."""
    cells: tuple[tuple[Cell, ...], ...] = tuple(
        tuple(row[column.key] for column in columns) for row in rows
    )
    return Table(
        id=name,
        title=title,
        caption=caption,
        columns=columns,
        rows=cells,
        query=query,
        claim=claim,
        row_ids=row_ids,
        notes=notes,
        is_open=is_open,
    )


def code(name: str | None, limit: int = 90) -> str:
    """A name for use inside a sentence: in backticks, shortened."""
    text = " ".join((name or "unknown").replace("`", "'").split())
    return f"`{text if len(text) <= limit else text[: limit - 3] + '...'}`"
