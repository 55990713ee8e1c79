"""What could be got back at most, on each basis of evidence beside the others, and never added."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapscope.report import model, utilisation
from gapscope.report.document import Column, Quantity, Statement, Table
from gapscope.report.facts import table

if TYPE_CHECKING:
    from gapscope.report.facts import Facts, Row

_BASES = {
    "recorded": "recorded launches and waits",
    "rules": "classes above the bound",
    "replay": "replay without it",
    "reference": "declared steps without a profiler",
}


def _query(rank: int, step_id: int) -> str:
    """Each cost on each basis in the shown step, with the range over the steps."""
    chosen = f"FILTER (WHERE step_id = {step_id})"
    measures = ("recoverable_ns", "step_share", "ceiling", "mfu")
    lines = "\n".join(
        f"    max({name}) {chosen} AS {name}, min({name}) AS {name}_min, max({name}) AS {name}_max,"
        for name in measures
    )
    return f"""\
SELECT
    basis, cost, status, coalesce(any_value(label), '') AS label,
{lines}
    count(*)::BIGINT AS step_count
FROM (
    SELECT
        g.*,
        CASE WHEN m.missing IS NULL AND m.contradicted IS NULL THEN
            m.step_tokens * m.token_flops / nullif(
                m.device_count * m.peak_tflops * 1000 * (g.observed_ns - g.recoverable_ns), 0
            )
        END AS mfu
    FROM v1.gain AS g
    CROSS JOIN v1.mfu_basis AS m
    WHERE g.rank = {rank} OR g.rank IS NULL
) AS per_step
GROUP BY basis, cost, status
HAVING max(recoverable_ns) > 0
ORDER BY
    list_position(['replay', 'rules', 'recorded', 'reference'], basis), recoverable_ns DESC, cost"""


def tables(facts: Facts) -> tuple[Table, ...]:
    """The table, where steps are budgeted."""
    if facts.focus is None or facts.projection != "device":
        return ()
    query = _query(facts.at.rank, facts.at.step_id)
    rows = facts.rows(query)
    if not rows:
        return ()
    has_mfu = utilisation.is_shown(facts)
    return (
        table(
            "gains",
            f"What could be got back at most, by evidence, in step {facts.at.step_id} of rank "
            f"{facts.at.rank}",
            "R is a ceiling of the time that goes, `T/(T-R) - 1` of the throughput that comes"
            + (", and of MFU while the work of a step stays what it is" if has_mfu else "")
            + ". Recorded classes are disjoint, and so are those above the bound; what replays "
            "save overlaps, and different evidence sees the same time in another way. Nothing here "
            "is a forecast.",
            "ceiling",
            query,
            [_row(row) for row in rows],
            (
                Column("basis", "evidence"),
                Column("cost", "without"),
                Column("recoverable", "R", "ns"),
                Column("step_share", "of the step", "share"),
                Column("ceiling", "throughput", "share", "`T/(T-R) - 1`, at most"),
                *((Column("mfu", "MFU", "share", "at most"),) if has_mfu else ()),
                Column("status", "known", "text", "measured, inferred or unverified"),
                *(
                    (Column("label", "label", "text", "`perturbed`: slowed by the profiler"),)
                    if any(row["label"] for row in rows)
                    else ()
                ),
            ),
            notes=(
                (
                    "Measured is only what a comparable pair shows: capture again after the change "
                    "and run `gapscope compare BEFORE AFTER`."
                ),
            ),
        ),
    )


def _row(row: Row) -> Row:
    n = row["step_count"]
    name = model.NAMES.get(row["cost"])
    cost = f"{row['cost']} {name}" if name else row["cost"].replace("_", "-")
    return {
        "basis": _BASES[row["basis"]],
        "cost": "all above it" if row["cost"] == "all" else cost,
        "recoverable": Quantity(
            row["recoverable_ns"], "ns", n, row["recoverable_ns_min"], row["recoverable_ns_max"]
        ),
        "step_share": row["step_share"],
        "ceiling": Quantity(row["ceiling"], "share", n, row["ceiling_min"], row["ceiling_max"]),
        "mfu": Quantity(row["mfu"], "share", n, row["mfu_min"], row["mfu_max"]),
        "status": row["status"],
        "label": row["label"],
    }


def statements(facts: Facts) -> list[Statement]:
    """That declared steps are of other work, where that shows."""
    if facts.focus is None or not facts.is_perturbed:
        return []
    if facts.rows(
        f"SELECT basis FROM v1.gain WHERE basis = 'reference' AND rank = {facts.at.rank} LIMIT 1"
    ):
        return []
    floor = "T_lb" if facts.model.has_bound else "the compute"
    return [
        Statement(
            f"The declared steps without a profiler are shorter than {floor} of the profiled "
            "ones: they are not of the same work, and no gain is stated on them.",
            "perturbation",
        )
    ]
