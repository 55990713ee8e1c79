"""Heat maps of rank by step, one a measure, binned where there are more than can be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapscope.report.document import Figure, HeatMap
from gapscope.units import plural, value

if TYPE_CHECKING:
    from gapscope.report.facts import Facts, Row

HEAT_RANKS = 64
HEAT_STEPS = 100

# Key, name for the choice, and what the caption says of it.
_MEASURES = (
    ("held", "holds up others", "in which others waited for this rank with nothing to compute"),
    ("late", "lateness", "by which it came to collectives later than the median rank"),
    ("waiting", "waiting", "in which it waited in collectives for the last rank"),
    ("absent", "compute absent", "without compute"),
    ("exposed", "exposed comm.", "of communication beside nothing else"),
    ("idle", "device idle", "in which the device did nothing"),
    ("r3", "R3", "that waiting for another rank added to it"),
)

QUERY = f"""\
WITH cell AS (
    SELECT
        b.rank, n.step_number,
        l.held_ns / b.step_ns AS held, l.behind_ns / b.step_ns AS late,
        l.wait_ns / b.step_ns AS waiting, b.compute_absent_ns / b.step_ns AS absent,
        b.exposed_comm_ns / b.step_ns AS exposed, b.idle_ns / b.step_ns AS idle,
        g.r3_ns / b.step_ns AS r3
    FROM v1.step_budget AS b
    INNER JOIN v1.step_number AS n ON b.rank = n.rank AND b.step_id = n.step_id
    LEFT JOIN v1.rank_lateness AS l ON b.rank = l.rank AND b.step_id = l.step_id
    LEFT JOIN v1.step_gap AS g
        ON b.rank = g.rank AND b.step_id = g.step_id AND NOT g.is_provisional
    WHERE b.projection = 'device' AND NOT b.is_boundary AND b.step_ns > 0
),
placed AS (
    SELECT
        *,
        dense_rank() OVER (ORDER BY rank) - 1 AS rank_place,
        dense_rank() OVER (ORDER BY step_number) - 1 AS step_place
    FROM cell
),
size AS (
    SELECT
        max(rank_place) // {HEAT_RANKS} + 1 AS ranks_a_row,
        max(step_place) // {HEAT_STEPS} + 1 AS steps_a_column
    FROM placed
)
SELECT
    min(p.rank) AS first_rank, max(p.rank) AS last_rank,
    min(p.step_number) AS first_step, max(p.step_number) AS last_step,
    p.rank_place // s.ranks_a_row AS place, p.step_place // s.steps_a_column AS col,
    max(p.held) AS held, max(p.late) AS late, max(p.waiting) AS waiting,
    max(p.absent) AS absent, max(p.exposed) AS exposed, max(p.idle) AS idle, max(p.r3) AS r3,
    any_value(s.ranks_a_row) AS ranks_a_row, any_value(s.steps_a_column) AS steps_a_column
FROM placed AS p
CROSS JOIN size AS s
GROUP BY p.rank_place // s.ranks_a_row, p.step_place // s.steps_a_column
ORDER BY place, col"""


def maps(facts: Facts) -> tuple[Figure, ...]:
    """A map for each measure that the run has; none for fewer than two ranks with steps."""
    if facts.projection != "device" or len(facts.summary) < 2:
        return ()
    cells = facts.rows(QUERY)
    rows = _spans(cells, "place", "rank")
    columns = _spans(cells, "col", "step")
    if not any(cell["held"] for cell in cells) or any(cell["held"] is None for cell in cells):
        # Nobody holds up anybody, or nobody knows: what every run has comes first.
        order = (_MEASURES[3], *_MEASURES[:3], *_MEASURES[4:])
    else:
        order = _MEASURES
    notes = ["Steps are matched by number; it is not known that ranks run them at one time."]
    ranks_a_row, steps_a_column = cells[0]["ranks_a_row"], cells[0]["steps_a_column"]
    if ranks_a_row > 1 or steps_a_column > 1:
        notes.append(
            f"Binned: a cell is the largest value of up to {plural(ranks_a_row, 'rank')} and "
            f"{plural(steps_a_column, 'step')}."
        )
    drawn: list[Figure] = []
    for key, measure, meaning in order:
        known = [cell[key] for cell in cells if cell[key] is not None]
        if not known or (key in ("held", "late", "waiting", "r3") and not any(known)):
            continue
        drawn.append(
            HeatMap(
                id="rank-step" if not drawn else f"rank-step-{key}",
                title=f"Rank by step: {measure}",
                caption=f"From {value(min(known), 'share')} to {value(max(known), 'share')} of a "
                f"step {meaning}. A row that stands out is a rank, a column a step.",
                ranks=tuple(low for low, _ in rows.values()),
                steps=tuple(low for low, _ in columns.values()),
                values=_grid(cells, key, rows, columns),
                low=min(known),
                high=max(known),
                query=QUERY,
                claim="lateness" if key in ("held", "late", "waiting") else "ranks",
                notes=tuple(notes),
                measure=measure,
                rank_labels=_labels(rows, "rank"),
                step_labels=_labels(columns, "step"),
            )
        )
    return tuple(drawn)


def _spans(cells: list[Row], place: str, what: str) -> dict[int, tuple[int, int]]:
    """First and last of each row or column, in order."""
    found: dict[int, tuple[int, int]] = {}
    for cell in sorted(cells, key=lambda cell: cell[place]):
        low, high = found.get(cell[place], (cell[f"first_{what}"], cell[f"last_{what}"]))
        found[cell[place]] = (min(low, cell[f"first_{what}"]), max(high, cell[f"last_{what}"]))
    return found


def _labels(spans: dict[int, tuple[int, int]], what: str) -> tuple[str, ...]:
    return tuple(
        f"{what} {low}" if low == high else f"{what}s {low}-{high}" for low, high in spans.values()
    )


def _grid(
    cells: list[Row],
    key: str,
    rows: dict[int, tuple[int, int]],
    columns: dict[int, tuple[int, int]],
) -> tuple[tuple[float | None, ...], ...]:
    known = {(cell["place"], cell["col"]): cell[key] for cell in cells}
    return tuple(tuple(known.get((row, column)) for column in columns) for row in rows)
