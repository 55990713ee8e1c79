"""How much slower a kernel runs beside communication, and what that does to a what-if."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gapscope.model.rules.fsdp2 import COLLECTIVES, ENGINE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gapscope.model.ladder import Setting
    from gapscope.model.load import Batch
    from gapscope.model.replay import Replayed, Scenario

    Int = NDArray[np.int64]
    Real = NDArray[np.float64]

# Fewer ops than this, or a slope within so many standard errors of none, tell nothing.
LEAST_OPS = 30
SURE = 3.0


def stretch(batch: Batch) -> float | None:
    """How many times longer compute runs beside communication than alone, from ops that do both.

    Ops are the same when they have one name and one place in a node of one kind and length: blocks
    repeat. Within each group run = alone * (1 + c * overlapped share); c is the pooled
    least-squares slope. None where the run cannot tell it from 1.
    """
    import numpy as np

    keys: list[Int] = []
    lengths: list[Real] = []
    shares: list[Real] = []
    for s, r in batch.cells:
        ops = batch.ops[s, r]
        if not len(ops) or batch.is_boundary[s]:
            continue
        order = np.argsort(ops.node, kind="stable")
        place = np.empty(len(ops), np.int64)
        place[order] = np.arange(len(ops)) - np.searchsorted(ops.node[order], ops.node[order])
        size = np.bincount(ops.node, minlength=len(batch.program))[ops.node]
        length = (ops.end - ops.start).astype(float)
        beside = _overlap(
            ops.start, ops.end, ops.start[ops.is_collective], ops.end[ops.is_collective]
        )
        wanted = ops.is_compute
        keys.append(np.stack([ops.name_id, place, size], axis=1)[wanted])
        lengths.append(length[wanted])
        shares.append((beside / np.maximum(1, length))[wanted])
    if not keys or sum(map(len, lengths)) < LEAST_OPS:
        return None
    _, group = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
    group = group.reshape(-1)
    length, share = np.concatenate(lengths), np.concatenate(shares)
    count = np.bincount(group)
    mean_length = (np.bincount(group, weights=length) / count)[group]
    mean_share = (np.bincount(group, weights=share) / count)[group]
    apart = share - mean_share
    # Long ops matter in proportion to their length.
    weight = float((mean_length * apart**2).sum())
    if weight == 0:
        return None
    slope = float(((length - mean_length) * apart).sum()) / weight
    rest = length - mean_length - slope * mean_length * apart
    error = float(np.sqrt((apart**2 * rest**2).sum())) / weight
    if abs(slope) <= SURE * error:
        return None
    usual = float((mean_length * share).sum() / mean_length.sum())
    return 1 + slope / (1 - slope * usual)


def stretched(setting: Setting, scenario: Scenario, plain: Replayed, factor: float) -> Replayed:
    """Replay again with compute slowed where it newly overlaps communication."""
    import numpy as np

    as_run = setting.play(setting_scenario(setting))
    gained = np.maximum(
        0, _overlap_by_segment(setting, plain) - _overlap_by_segment(setting, as_run)
    )
    slower = (gained * max(0.0, factor - 1)).astype(np.int64)
    cuts = setting.cuts
    grown = replace(
        cuts,
        work=cuts.work + slower,
        until_last=cuts.until_last + slower,
        released=cuts.released + slower,
        last_released=cuts.last_released + slower,
    )
    return replace(setting, cuts=grown).play(scenario)


def setting_scenario(setting: Setting) -> Scenario:
    """The run as it was executed."""
    from gapscope.model.ladder import scenario

    return scenario("", setting.queues)


def _overlap_by_segment(setting: Setting, played: Replayed) -> Int:
    import numpy as np

    program = setting.batch.program
    kinds = [program[segment.node].kind for segment in setting.cuts.items]
    links = [i for i, kind in enumerate(kinds) if kind in COLLECTIVES]
    engine = [i for i, kind in enumerate(kinds) if kind in ENGINE]
    result = np.zeros_like(played.end)
    for s in range(played.end.shape[1]):
        for r in range(played.end.shape[2]):
            # A segment's own run: idle time before it through a late release does not count.
            end = played.end[engine, s, r]
            start = end - np.minimum(
                end - played.start[engine, s, r], setting.cuts.work[engine, s, r]
            )
            result[engine, s, r] = _overlap(
                start, end, played.start[links, s, r], played.end[links, s, r]
            )
    return result


def _overlap(start: Int, end: Int, other_start: Int, other_end: Int) -> Int:
    """Time that each [start, end) shares with the union of the others, ns."""
    import numpy as np

    if not len(other_start):
        return np.zeros_like(start)
    order = np.argsort(other_start, kind="stable")
    begin, until = other_start[order], np.maximum.accumulate(other_end[order])
    begin = np.maximum(begin, np.concatenate(([begin[0]], until[:-1])))
    begin = np.minimum(begin, until)
    covered = np.concatenate(([0], np.cumsum(until - begin)))

    def upto(at: Int) -> Int:
        k = np.searchsorted(begin, at, side="right")
        inside = np.where(k > 0, np.minimum(at, until[k - 1]) - begin[k - 1], 0)
        return np.where(k > 0, covered[np.maximum(k - 1, 0)] + np.maximum(inside, 0), 0)

    return upto(end) - upto(start)
