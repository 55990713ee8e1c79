"""Every nanosecond without compute in exactly one class, reconciled with the bound."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from gapscope.model.reasons import NONE, Reasons
from gapscope.model.rules.book import Edge, Node
from gapscope.model.rules.fsdp2 import COMPUTE, ENGINE
from gapscope.model.walk import Piece, Walker

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gapscope.model.bound import Schedule
    from gapscope.model.load import Batch

    Int = NDArray[np.int64]

SOFT = ("R1", "R2", "R3", "floor", "unresolved")


@dataclass(frozen=True)
class Gap:
    """Compute-absent [start, end) of a rank; `op` ends it, or is the last op of the window."""

    start: int
    end: int
    op: int
    recoverable_ns: int


def structural(program: Sequence[Node], edges: Sequence[Edge]) -> list[bool]:
    """For each node: whether every compute node is ordered with it by data and buffers (H1)."""
    kinds = [node.kind for node in program]
    ancestors = [0] * len(kinds)
    for edge in edges:  # sorted by `after`, so that ancestors of `before` are complete
        ancestors[edge.after] |= ancestors[edge.before] | (1 << edge.before)
    compute = [i for i, kind in enumerate(kinds) if kind in COMPUTE]
    return [
        all(ancestors[v] >> c & 1 or ancestors[c] >> v & 1 or c == v for c in compute)
        for v in range(len(kinds))
    ]


def gaps(batch: Batch, found: Schedule, s: int, r: int) -> list[Gap]:
    """Gaps of one rank and step with what of each the bound does not need (persistent saving)."""
    import numpy as np

    ops = batch.ops[s, r]
    begin, finish = int(batch.window_start[s, r]), int(batch.window_end[s, r])
    compute = np.flatnonzero(ops.is_compute & (ops.end > begin) & (ops.start < finish))
    compute = compute[np.argsort(ops.start[compute], kind="stable")]
    start = np.maximum(ops.start[compute], begin)
    end = np.minimum(ops.end[compute], finish)
    until = np.concatenate(([begin], np.maximum.accumulate(end))) if len(end) else np.array([begin])
    # A saving that later waiting eats is none: what counts is the least saving from here on.
    saving = np.append(
        start - begin - bound_starts(batch, found, s, r)[compute],
        finish - begin - int(found.t_lb[s, r]),
    )
    persistent = np.minimum.accumulate(saving[::-1])[::-1]
    gained = np.diff(persistent, prepend=0)
    last = int(np.argmax(ops.end)) if len(ops) else NONE
    result: list[Gap] = []
    owed = 0
    for k in range(len(compute) + 1):
        is_tail = k == len(compute)
        gap_start = int(until[k])
        gap_end = finish if is_tail else int(start[k])
        owed += int(gained[k])
        if gap_end > gap_start:
            result.append(Gap(gap_start, gap_end, last if is_tail else int(compute[k]), owed))
            owed = 0
    return result


def bound_starts(batch: Batch, found: Schedule, s: int, r: int) -> Int:
    """Start of each op in the bound's schedule: its node's, plus the node's work before it, ns."""
    import numpy as np

    ops = batch.ops[s, r]
    order = np.lexsort((ops.start, ops.node))
    length = (ops.end - ops.start)[order]
    node = ops.node[order]
    before = np.cumsum(length) - length
    first = np.searchsorted(node, node, side="left")
    offset = np.empty(len(ops), np.int64)
    offset[order] = before - before[first]
    offset = np.minimum(offset, batch.node_busy[ops.node, s, r])
    starts: Int = found.start[ops.node, s, r] + offset
    return starts


def classify(
    batch: Batch,
    found: Schedule,
    walker: Walker,
    reasons: Reasons,
    is_structural: Sequence[bool],
    s: int,
    r: int,
) -> list[Piece]:
    """Reconciled pieces of one rank and step, in time order; in sum its compute-absent time."""
    engine = _engine_work(reasons)
    result: list[Piece] = []
    owed = 0
    for gap in gaps(batch, found, s, r):
        pieces = _overlay(walker.gap(r, gap.op, gap.start, gap.end), engine)
        # Timestamps of one stream overlap by a clock tick here and there: the next gap takes the
        # rest.
        owed += gap.recoverable_ns
        room = gap.end - gap.start - sum(p.length for p in pieces if p.gap_class == "work")
        take = max(0, min(owed, room))
        owed -= take
        pieces = [
            piece._replace(gap_class="H1" if _is_hard(piece, is_structural) else "H2")
            if piece.gap_class == "hard"
            else piece
            for piece in pieces
        ]
        result += reconcile(pieces, take)
    return result


def _is_hard(piece: Piece, is_structural: Sequence[bool]) -> bool:
    return piece.awaited != NONE and is_structural[piece.awaited]


def _engine_work(reasons: Reasons) -> list[tuple[int, int, int]]:
    """(start, end, op) of all that occupies the compute engine without computing, in time order."""
    return sorted(
        (reasons.start[i], reasons.end[i], i)
        for i in range(len(reasons))
        if reasons.kind[i] in ENGINE and not reasons.is_compute[i]
    )


def _overlay(pieces: list[Piece], engine: list[tuple[int, int, int]]) -> list[Piece]:
    """Whatever else was waited for meanwhile: time in which the engine works is `work`."""
    if not pieces:
        return pieces
    result: list[Piece] = []
    for piece in pieces:
        if piece.gap_class == "work":
            result.append(piece)
            continue
        at, until = piece.start, piece.end
        first = max(0, bisect.bisect_left(engine, (at, 0, 0)) - 4)
        for start, end, op in islice(engine, first, None):
            if start >= until:
                break
            if end <= at:
                continue
            lo, hi = max(start, at), min(end, until)
            if hi <= lo:
                continue
            if lo > at:
                result.append(piece._replace(start=at, end=lo))
            result.append(Piece(lo, hi, "work", "", op))
            at = hi
        if at < until:
            result.append(piece if at == piece.start else piece._replace(start=at))
    return result


def reconcile(pieces: list[Piece], recoverable_ns: int) -> list[Piece]:
    """Make the soft part of a gap equal what the bound says can be saved there, in whole ns.

    More found than persists: cut lateness hidden in transfers first, then the rest in proportion;
    what is cut is late but worth nothing, H2. Less found: hard time becomes `carried`.
    """
    soft = [i for i, piece in enumerate(pieces) if piece.gap_class in SOFT]
    excess = sum(pieces[i].length for i in soft) - recoverable_ns
    if excess > 0:
        hidden = [i for i in soft if pieces[i].is_hidden]
        cut = _shares([pieces[i].length for i in hidden], excess)
        rest = excess - sum(cut)
        open_ = [i for i in soft if not pieces[i].is_hidden]
        cut_of = dict(zip(hidden, cut, strict=True))
        cut_of.update(zip(open_, _shares([pieces[i].length for i in open_], rest), strict=True))
        return _split(pieces, cut_of, "H2")
    if excess < 0:
        hard = [i for i, piece in enumerate(pieces) if piece.gap_class in ("H1", "H2")]
        taken = _shares([pieces[i].length for i in hard], -excess)
        return _split(pieces, dict(zip(hard, taken, strict=True)), "carried")
    return pieces


def _shares(lengths: list[int], amount: int) -> list[int]:
    """Whole parts of `amount` in proportion to lengths, none above its length."""
    total = sum(lengths)
    amount = min(amount, total)
    if amount <= 0:
        return [0] * len(lengths)
    parts: list[int] = []
    done = upto = 0
    for length in lengths:
        upto += length
        part = amount * upto // total - done
        parts.append(part)
        done += part
    return parts


def _split(pieces: list[Piece], cut_of: dict[int, int], gap_class: str) -> list[Piece]:
    result: list[Piece] = []
    for i, piece in enumerate(pieces):
        cut = cut_of.get(i, 0)
        if cut:
            result.append(piece._replace(end=piece.start + cut, gap_class=gap_class))
        if cut < piece.length:
            result.append(piece._replace(start=piece.start + cut))
    return result
