"""A comparison as CSV: a line a part, for spreadsheets and plots."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapscope.compare.document import Comparison
    from gapscope.compare.intervals import Interval

HEADER = (
    *("ledger", "rank", "part", "a_ns", "b_ns", "delta_ns"),
    *("low_ns", "high_ns", "interval", "median_delta_ns"),
)


def render(document: Comparison) -> str:
    """Lines of the steps (`step`, means and medians) and of every ledger, with sum and residual.

    An empty rank is the run.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for step in document.steps:
        ends = _ends(step.median_interval)
        medians = (step.a_median_ns, step.b_median_ns, step.median_delta_ns)
        writer.writerow(("step", step.rank, "median", *medians, *ends, step.median_delta_ns))
    for item in document.ledgers:
        name = item.id.partition("-")[0]
        for line in (*item.lines, item.total):
            amounts = (line.a_ns, line.b_ns, line.delta_ns)
            ends = _ends(line.interval)
            writer.writerow((name, item.rank, line.label, *amounts, *ends, line.median_delta_ns))
        residuals = (item.residual_ns, None, None, None, item.median_residual_ns)
        writer.writerow((name, item.rank, "residual", None, None, *residuals))
    return text.getvalue()


def _ends(interval: Interval | None) -> tuple[float | None, float | None, str | None]:
    return (
        (None, None, None)
        if interval is None
        else (interval.low_ns, interval.high_ns, interval.kind)
    )
