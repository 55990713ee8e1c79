"""Checks that run with every analysis, and what each withholds when it fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapscope.model.reasons import CLOCK_QUANTUM_NS
from gapscope.model.rules.book import Edge

if TYPE_CHECKING:
    import duckdb
    import numpy as np
    from numpy.typing import NDArray

    from gapscope.model.load import Batch

    Int = NDArray[np.int64]

VIOLATIONS = 0.001
REPLAY_ERROR = 0.02
UNRESOLVED = 0.05
COVERAGE = 0.01
# In captures of one job the ends of a collective agree to under 1 % of a step.
CLOCK_RESIDUAL = 0.05
# A call that returns sooner found the device idle, or only polled.
BLOCKING_NS = 30_000


@dataclass(frozen=True)
class Check:
    """One row of `model_check`."""

    name: str
    step: int | None
    status: str
    measured: float | None
    allowed: float | None
    detail: str
    withholds: str | None


# Blocking synchronization strictly between a step's first and last launch; those that open and
# close it do not count.
_BLOCKING = """
WITH launched AS (
    SELECT u.rank, u.step_id, min(o.launch_start_ns) AS first_ns, max(o.launch_start_ns) AS last_ns
    FROM v1.op_unit AS u INNER JOIN v1.device_op AS o ON u.rank = o.rank AND u.op_id = o.op_id
    GROUP BY u.rank, u.step_id
),
blocking AS (
    SELECT a.rank, a.start_ns, a.end_ns, n.name
    FROM v1.api_call AS a
    INNER JOIN v1.name AS n ON a.rank = n.rank AND a.name_id = n.name_id
    WHERE regexp_matches(
            n.name, '(Stream|Event|Device|Ctx)Synchronize|^(cudaMemcpy|cuMemcpyDtoH|hipMemcpy)$'
        )
        AND a.end_ns - a.start_ns > $1
)
SELECT l.step_id, count(*), count(DISTINCT l.rank), min(b.name), max(b.end_ns - b.start_ns)
FROM launched AS l
INNER JOIN blocking AS b ON l.rank = b.rank AND b.start_ns > l.first_ns AND b.start_ns < l.last_ns
GROUP BY l.step_id
"""

_COVERAGE = """
SELECT b.step_id, max(abs(b.compute_ns - coalesce(p.compute_ns, 0)) / greatest(b.compute_ns, 1))
FROM v1.step_budget AS b
LEFT JOIN (
    SELECT rank, step_id, sum(compute_ns) AS compute_ns FROM v1.program_node GROUP BY rank, step_id
) AS p ON b.rank = p.rank AND b.step_id = p.step_id
WHERE b.projection = 'device'
GROUP BY b.step_id
"""


def violations(batch: Batch, edges: Sequence[Edge]) -> list[Check]:
    """Every data and buffer edge holds in the run, up to the quantum of the device's one clock."""
    broken = 0
    worst: dict[str, int] = {}
    for edge in edges:
        early = batch.node_end[edge.before] - batch.node_start[edge.after]
        count = int((early > CLOCK_QUANTUM_NS).sum())
        broken += count
        if count:
            worst[edge.rule] = worst.get(edge.rule, 0) + count
    total = len(edges) * batch.observed.size
    share = broken / total if total else 0.0
    named = ", ".join(f"{rule} {count}" for rule, count in sorted(worst.items()))
    return [
        Check(
            "rule_violations", None, "ok" if share <= VIOLATIONS else "fail", share, VIOLATIONS,
            f"{broken} of {total} instances of data and buffer rules do not hold"
            + (f": {named}" if named else ""),
            None if share <= VIOLATIONS else "bound",
        )
    ]  # fmt: skip


def clocks(batch: Batch, residual_ns: int) -> list[Check]:
    """Ends of matched collectives coincide, or the ranks do not belong together."""
    share = residual_ns / int(batch.observed.min())
    if share <= CLOCK_RESIDUAL:
        return []
    return [
        Check(
            "clock_residual", None, "fail", share, CLOCK_RESIDUAL,
            f"matched collectives end {residual_ns / 1e6:.1f} ms apart on whatever clock: these "
            "captures are not of one job and time, or their clocks drift", "bound",
        )
    ]  # fmt: skip


def order(batch: Batch, t_lb: Int) -> list[Check]:
    """Hold compute <= T_lb <= observed, on each rank and step."""
    compute = batch.node_compute.sum(axis=0)
    found = []
    for s, step in enumerate(batch.steps):
        below = bool((compute[s] <= t_lb[s]).all())
        above = bool((t_lb[s] <= batch.observed[s]).all())
        ratio = float((t_lb[s] / batch.observed[s]).max())
        if below and above:
            continue
        wrong = (
            "the run beats the bound" if not above else "compute alone takes longer than the bound"
        )
        found.append(Check("bound_order", step, "fail", ratio, 1.0, wrong, "bound"))
    if not found:
        ratio = float((t_lb / batch.observed).max())
        found.append(
            Check(
                "bound_order",
                None,
                "ok",
                ratio,
                1.0,
                "compute <= T_lb <= observed on every rank and step",
                None,
            )
        )
    return found


def coverage(con: duckdb.DuckDBPyConnection, steps: Sequence[int]) -> list[Check]:
    """Compute of the program against compute of the window: ops without a launch have no node."""
    found = []
    worst = 0.0
    for step, off in con.execute(_COVERAGE).fetchall():
        if step not in steps:
            continue
        worst = max(worst, float(off))
        if off > COVERAGE:
            found.append(
                Check("program_coverage", step, "fail", float(off), COVERAGE,
                      "compute of the step and of the program differ: launches are missing or "
                      "belong to other steps",
                      "bound")
            )  # fmt: skip
    if not found:
        found.append(
            Check(
                "program_coverage",
                None,
                "ok",
                worst,
                COVERAGE,
                "the program holds the step's compute",
                None,
            )
        )
    return found


def blocking_sync(con: duckdb.DuckDBPyConnection, steps: Sequence[int]) -> list[Check]:
    """The host waits for the device inside the step: releases would follow from the device."""
    found = []
    for step, count, ranks, name, longest in con.execute(_BLOCKING, [BLOCKING_NS]).fetchall():
        if step in steps:
            found.append(
                Check("blocking_sync", int(step), "warn", float(count), 0.0,
                      f"{count} blocking calls inside the step on {ranks} ranks ({name}, "
                      f"the longest {longest / 1e6:.1f} ms): launches after them wait for the "
                      "device",
                      "ladder")
            )  # fmt: skip
    return found


def run_ahead(batch: Batch) -> list[Check]:
    """Launches of a step that were issued before the device had finished the step before."""
    found = []
    for s, step in enumerate(batch.steps):
        ahead = total = 0
        for r in range(len(batch.ranks)):
            ops = batch.ops[s, r]
            ahead += int((ops.issued < batch.window_start[s, r]).sum())
            total += len(ops)
        share = ahead / total if total else 0.0
        if share > 0:
            found.append(
                Check("run_ahead", step, "warn", share, 0.0,
                      f"{ahead} of {total} ops were issued before the step before had ended on the "
                      "device", "ladder")
            )  # fmt: skip
    return found


def replay_error(batch: Batch, played: Int) -> list[Check]:
    """The as-executed replay against the run; no op replays its own lag, so it can miss."""
    found = []
    off = (played - batch.observed) / batch.observed
    for s, step in enumerate(batch.steps):
        worst = float(max(off[s], key=abs))
        is_ok = abs(worst) <= REPLAY_ERROR
        found.append(
            Check("replay_error", step, "ok" if is_ok else "fail", worst, REPLAY_ERROR,
                  f"the replay of the run as executed is off by {worst:+.1%}",
                  None if is_ok else "verdict")
        )  # fmt: skip
    return found


def unresolved(step: int, share: float) -> Check:
    """Compute-absent time without a cause, of the step of the worst rank."""
    is_ok = share <= UNRESOLVED
    return Check(
        "unresolved", step, "ok" if is_ok else "fail", share, UNRESOLVED,
        f"{share:.1%} of the step has no cause that a rule, a launch or a queue explains",
        None if is_ok else "verdict",
    )  # fmt: skip
