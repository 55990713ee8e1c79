"""Launch floor: what a start costs after everything it waits for, measured per kind of edge."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gapscope.model.reasons import FLOOR_KINDS, Reasons

if TYPE_CHECKING:
    from gapscope.model.load import Batch

FLOOR_CAP_NS = 30_000


def replay_floor(batch: Batch) -> int:
    """Median gap between ops of one stream where the next one was already issued, ns."""
    import numpy as np

    gaps = []
    for cell in batch.cells:
        ops = batch.ops[cell]
        for stream in np.unique(ops.stream):
            mine = np.flatnonzero(ops.stream == stream)
            before, after = mine[:-1], mine[1:]
            waiting = ops.issued[after] < ops.end[before]
            gaps.append((ops.start[after] - ops.end[before])[waiting])
    found = np.concatenate(gaps) if gaps else np.empty(0)
    return int(np.median(found)) if len(found) else 0


def start_floors(columns: Iterable[Reasons]) -> dict[str, int]:
    """p95 lag by kind of edge, at most 30 us; 30 us for a kind that never occurs."""
    import numpy as np

    lags: dict[str, list[int]] = {kind: [] for kind in FLOOR_KINDS}
    for reasons in columns:
        for i in range(len(reasons)):
            why = reasons.of(i)
            lag = reasons.start[i] - why.ready_ns
            if lag >= 0:
                lags[why.floor_kind].append(lag)
    return {
        kind: min(int(np.percentile(found, 95)), FLOOR_CAP_NS) if found else FLOOR_CAP_NS
        for kind, found in lags.items()
    }
