"""The ledgers: parts, nodes, ranges and kernels that each sum to the difference of the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from gapscope.compare import intervals, queries
from gapscope.compare.document import Ledger, Line
from gapscope.compare.intervals import Interval

Row = dict[str, Any]


class Rows(Protocol):
    """What answers queries over `pair.*`."""

    def rows(self, query: str) -> list[Row]:
        """Rows of a query."""


# Rows of a ledger of nodes, ranges or kernels that are listed; the others are summed in one.
_MOST = 40

LABELS = {
    "compute": "compute",
    "launch_starved": "launch-starved",
    "blocking": "blocking",
    "stalled": "stalled",
    "tail": "tail",
    "packing": "packing",
    "exposed_comm": "exposed communication",
    "copy": "copies and memsets",
    "idle": "idle",
    "t_lb": "T_lb",
    "gap": "above T_lb",
    "work": "work besides compute",
    "H1": "H1 structural",
    "H2": "H2 budget",
    "R1": "R1 late launch",
    "R2": "R2 queue serialization",
    "R3": "R3 cross-rank skew",
    "floor": "launch floor",
    "unresolved": "unresolved",
    "carried": "carried",
}

# Ledger -> title, caption, claim; in the order that they are shown in.
_PARTS = {
    "model": (
        "By mechanism",
        "By the rules of the workload: compute and hard idle make T_lb, the rest lies above it.",
        "mechanism",
    ),
    "bound": (
        "By the bound",
        "T_lb is the shortest step that the rules allow for the measured work.",
        "mechanism",
    ),
    "split": (
        "By what compute waits for",
        "By recorded launches and waits. Queue serialization hides in blocking and in stalled.",
        "ledger",
    ),
    "device": (
        "By what the device does",
        "What runs, the first of these that does: compute, packing, then communication alone.",
        "ledger",
    ),
}
_CHARGES = {
    "node": (
        "By node of the program",
        "A node is charged while it computes, and while nothing computes until it does.",
    ),
    "range": (
        "By annotated range",
        "The innermost range around a launch is charged while that computes, and waits to.",
    ),
    "class": (
        "By class of compute kernel",
        "A class is charged while its kernels run, and while nothing computes until they do.",
    ),
    "kernel": (
        "By compute kernel",
        "A kernel is charged while it runs, and while nothing computes until it does.",
    ),
}
_NO_LABEL = {
    "node": "no node",
    "range": "no range",
    "class": "after the last compute op",
    "kernel": "after the last compute op",
}


def build(pair: Rows, shown: Row) -> tuple[Ledger, ...]:
    """Every ledger that both runs know: of the shown rank first, then of the run."""
    is_steps = shown["projection"] == "device"
    parts = pair.rows(queries.PARTS)
    residuals = {(row["subject"], row["ledger"]): row for row in pair.rows(queries.RESIDUALS)}
    is_provisional = bool(pair.rows(queries.PROVISIONAL)[0]["is_provisional"])
    found = []
    for subject in (shown["rank"], None):
        for name in _PARTS:
            rows = [row for row in parts if row["subject"] == subject and row["ledger"] == name]
            if any(row["delta"] is None for row in rows):
                continue
            found.append(
                _of_parts(
                    name, subject, rows, residuals[subject, name], is_provisional, is_steps=is_steps
                )
            )
        if subject is not None:
            found += _charged(pair, shown["rank"], is_steps=is_steps)
    return tuple(found)


def _of_parts(
    name: str,
    subject: int | None,
    rows: list[Row],
    residual: Row,
    is_provisional: bool,
    *,
    is_steps: bool,
) -> Ledger:
    title, caption, claim = _PARTS[name]
    sure = _intervals(rows, is_steps=is_steps)
    lines = tuple(
        Line(
            label=LABELS[row["part"]],
            a_ns=row["a_mean"],
            b_ns=row["b_mean"],
            delta_ns=row["delta"],
            interval=interval,
            median_delta_ns=row["median_delta"],
            time_class=row["part"],
        )
        for row, interval in zip(rows, sure, strict=True)
    )
    of_model = claim == "mechanism"
    return Ledger(
        id=f"{name}-{'run' if subject is None else f'rank-{subject}'}",
        title=title,
        caption=caption,
        rank=subject,
        lines=lines,
        total=_total(lines),
        residual_ns=residual["residual"],
        median_residual_ns=residual["median_residual"],
        query=queries.parts(subject, name),
        claim=claim,
        is_provisional=of_model and is_provisional,
        notes=("Provisional: the verdict on these classes was refused in one of the runs.",)
        if of_model and is_provisional
        else (),
    )


def _charged(pair: Rows, rank: int, *, is_steps: bool) -> list[Ledger]:
    rows = pair.rows(queries.CHARGES)
    residuals = {row["level"]: row["residual"] for row in pair.rows(queries.CHARGE_RESIDUALS)}
    is_named = pair.rows(queries.NAMING)[0]["is_by_name"]
    found: list[Ledger] = []
    for level, (title, caption) in _CHARGES.items():
        own = [row for row in rows if row["level"] == level]
        # Without labels on both sides there is nothing to pair; ranges stand in for nodes.
        if not any(row["label"] and row["a_mean"] and row["b_mean"] for row in own):
            continue
        if level == "range" and any(ledger.id.startswith("node-") for ledger in found):
            continue
        # Tools spell the names of kernels in their own ways.
        if level == "kernel" and not is_named:
            continue
        sure = _intervals(own, is_steps=is_steps)
        lines = [
            Line(
                label=row["label"] or _NO_LABEL[level],
                a_ns=row["a_mean"],
                b_ns=row["b_mean"],
                delta_ns=row["delta"],
                interval=interval,
                compute_delta_ns=row["compute_delta"],
                wait_delta_ns=row["wait_delta"],
                op_class=row["op_class"] or "",
            )
            for row, interval in zip(own, sure, strict=True)
        ]
        if len(lines) > _MOST:
            lines = [*lines[: _MOST - 1], _others(lines[_MOST - 1 :])]
        found.append(
            Ledger(
                id=f"{level}-rank-{rank}",
                title=title,
                caption=caption,
                rank=rank,
                lines=tuple(lines),
                total=_total(lines),
                residual_ns=residuals[level],
                median_residual_ns=None,
                query=queries.charges(level),
                claim="charge",
            )
        )
    return found


def _intervals(rows: list[Row], *, is_steps: bool) -> Sequence[Interval | None]:
    """Steps vary; of a whole capture there is only one."""
    if not is_steps or not rows:
        return [None] * len(rows)
    return intervals.of_means(
        [row["a_windows"] for row in rows], [row["b_windows"] for row in rows]
    )


def _total(lines: Sequence[Line]) -> Line:
    return Line(
        label="sum",
        a_ns=sum(line.a_ns or 0 for line in lines),
        b_ns=sum(line.b_ns or 0 for line in lines),
        delta_ns=sum(line.delta_ns or 0 for line in lines),
        interval=None,
        median_delta_ns=sum(line.median_delta_ns or 0 for line in lines)
        if all(line.median_delta_ns is not None for line in lines)
        else None,
        compute_delta_ns=sum(line.compute_delta_ns or 0 for line in lines)
        if all(line.compute_delta_ns is not None for line in lines)
        else None,
        wait_delta_ns=sum(line.wait_delta_ns or 0 for line in lines)
        if all(line.wait_delta_ns is not None for line in lines)
        else None,
    )


def _others(lines: Sequence[Line]) -> Line:
    total = _total(lines)
    return Line(
        label=f"{len(lines)} others",
        a_ns=total.a_ns,
        b_ns=total.b_ns,
        delta_ns=total.delta_ns,
        interval=None,
        compute_delta_ns=total.compute_delta_ns,
        wait_delta_ns=total.wait_delta_ns,
    )
