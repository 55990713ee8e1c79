"""Plain interval arithmetic, one nanosecond at a time: the truth that the SQL is held against."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Op:
    """A device op of a small synthetic rank."""

    op_id: int
    time_class: str
    start: int
    end: int
    issued: int | None
    producer_end: int | None


def cells(ops: list[Op], classes: set[str]) -> set[int]:
    """Every nanosecond [t, t+1) in which an op of these classes runs."""
    return {t for op in ops if op.time_class in classes for t in range(op.start, op.end)}


ALL = {"compute", "communication", "packing", "copy", "memset", "graph"}
COMPUTE = {"compute", "graph"}


def budget(ops: list[Op], start: int, end: int) -> dict[str, int]:
    """The columns of v1.window_budget for one window, by brute force."""
    window = set(range(start, end))
    busy = cells(ops, ALL) & window
    compute = cells(ops, COMPUTE) & window
    comm = cells(ops, {"communication"}) & window
    starters: dict[int, Op] = {}
    for op in sorted(ops, key=lambda o: o.op_id, reverse=True):
        if op.time_class in COMPUTE:
            starters[op.start] = op
    split = {"launch_starved_ns": 0, "blocking_ns": 0, "stalled_ns": 0, "tail_ns": 0}
    for t in window - compute:
        later = [op.start for op in ops if op.time_class in COMPUTE and t < op.start < end]
        if not later:
            split["tail_ns"] += 1
            continue
        closer = starters[min(later)]
        issued = closer.issued if closer.issued is not None else -(10**18)
        if t < issued:
            split["launch_starved_ns"] += 1
        elif closer.producer_end is not None and t < closer.producer_end:
            split["blocking_ns"] += 1
        else:
            split["stalled_ns"] += 1
    return {
        "step_ns": end - start,
        "busy_ns": len(busy),
        "idle_ns": end - start - len(busy),
        "compute_ns": len(compute),
        "noncomm_ns": len(cells(ops, COMPUTE | {"packing"}) & window),
        "comm_ns": len(comm),
        "exposed_comm_ns": len(comm - cells(ops, ALL - {"communication"})),
        "copy_ns": len(cells(ops, {"copy"}) & window),
        "compute_absent_ns": end - start - len(compute),
        **split,
    }
