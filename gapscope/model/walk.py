"""Walk back from the end of a gap: which rule, launch, queue or rank each nanosecond waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from gapscope.model.reasons import NONE, Reasons
from gapscope.model.rules.fsdp2 import ENGINE

if TYPE_CHECKING:
    from gapscope.model.load import Batch

RECOVERABLE = ("R1", "R2", "R3")


class Piece(NamedTuple):
    """One stretch of a gap, [start, end) aligned ns, with its class and the evidence for it."""

    start: int
    end: int
    gap_class: str  # R1 R2 R3 floor unresolved work hard
    sub_cause: str = ""
    op: int = NONE  # position of the op that waited, or that worked, on the gap's own rank
    node: int = NONE
    rule: str = ""
    culprit: int = NONE  # position of the rank that came last
    awaited: int = NONE  # collective that a hard piece waits for
    is_hidden: bool = False  # lateness of the transfer, not of this rank's own launch
    # Where and when the cause lies, if not here and now (hidden lateness).
    cause_rank: int = NONE
    cause_start: int = 0
    cause_end: int = 0

    @property
    def length(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Clock:
    """What a step's walks need beside its ops: floors by kind of edge, the clock residual, ns."""

    floors: dict[str, int]
    residual_ns: int


class Walker:
    """Walks of one step, over all its ranks."""

    def __init__(
        self,
        batch: Batch,
        s: int,
        reasons: Sequence[Reasons] | Mapping[int, Reasons],
        clock: Clock,
    ) -> None:
        self._batch = batch
        self._s = s
        self._reasons = reasons
        self._clock = clock

    def gap(self, r: int, op: int, start: int, end: int) -> list[Piece]:
        """Pieces of the gap [start, end) before `op` on rank position r: in time order, no holes.

        `end` may lie after the op's start where the op itself still ran: the tail of a step.
        """
        own = self._reasons[r]
        pieces: list[Piece] = []
        if end > own.start[op]:
            pieces += self._running(r, op, max(own.start[op], start), end, start)
        pieces += self._waiting(r, op, min(end, own.start[op]), start, gap_start=start)
        pieces.sort(key=lambda piece: piece.start)
        return pieces

    def _waiting(self, r: int, op: int, hi: int, lo: int, gap_start: int | None) -> list[Piece]:
        """What [lo, hi) before the start of `op` was spent on; hidden lateness only for a gap."""
        own = self._reasons[r]
        found: list[Piece] = []
        while hi > lo:
            why = own.of(op)
            node = own.node[op]
            ready = max(min(why.ready_ns, hi), lo)
            if hi > ready:
                found += self._lag(own, op, ready, hi, why.floor_kind)
                hi = ready
            released = max(why.rule_ns, why.issued_ns)
            if why.held_ns > released and hi > max(released, lo):
                at = max(released, lo)
                found.append(Piece(at, hi, "R2", why.held_by, op, node, _held_rule(why.held_by)))
                hi = at
            if why.issued_ns > why.rule_ns and hi > max(why.rule_ns, lo):
                at = max(why.rule_ns, lo)
                found.append(Piece(at, hi, "R1", "", op, node, why.rule))
                hi = at
            if hi <= lo or why.rule_op == NONE:
                break
            op = why.rule_op
            if own.is_compute[op]:
                # Compute in the gap runs on another stream than the gap's own chain.
                break
            begin = max(own.start[op], lo)
            if hi > begin:
                found += self._running(r, op, begin, hi, gap_start)
                hi = begin
        if hi > lo:
            found.append(Piece(lo, hi, "unresolved", "no cause found", op, own.node[op]))
        return found

    def _lag(self, own: Reasons, op: int, ready: int, hi: int, kind: str) -> list[Piece]:
        floor = min(hi - ready, self._clock.floors[kind])
        found = [Piece(ready, ready + floor, "floor", kind, op, own.node[op])]
        if hi > ready + floor:
            sub = "residency" if self._is_crowded(own, op, ready + floor) else "late start"
            found.append(Piece(ready + floor, hi, "unresolved", sub, op, own.node[op]))
        return found

    @staticmethod
    def _is_crowded(own: Reasons, op: int, at: int) -> bool:
        """Whether a kernel ran at `at`, before the op began, so that it may have lacked room."""
        near = slice(max(0, op - 200), op + 200)
        ops = own.ops
        runs = (ops.start[near] <= at) & (ops.end[near] > at) & ~ops.is_copy[near]
        return bool(runs.any())

    def _running(self, r: int, op: int, lo: int, hi: int, gap_start: int | None) -> list[Piece]:
        """What [lo, hi) of the run of a producer counts as."""
        own = self._reasons[r]
        node = own.node[op]
        if own.is_collective[op] and node in self._batch.joins:
            return self._collective(r, op, lo, hi, gap_start)
        if own.kind[op] in ENGINE:
            return [Piece(lo, hi, "work", "", op, node)]
        return [Piece(lo, hi, "hard", "", op, node, awaited=self._collective_of(node))]

    def _collective(self, r: int, op: int, lo: int, hi: int, gap_start: int | None) -> list[Piece]:
        own = self._reasons[r]
        node = own.node[op]
        group = next((g for g in self._batch.joins[node] if r in g), [r])
        starts = self._batch.node_start[node, self._s]
        last = max(group, key=lambda rank: int(starts[rank]))
        arrival = max(int(starts[last]), own.start[op])
        found: list[Piece] = []
        arrived = min(max(arrival, lo), hi)
        if arrived > lo:
            if arrival - own.start[op] <= self._clock.residual_ns:
                found.append(Piece(lo, arrived, "floor", "clock residual", op, node))
            else:
                why = self._laggard(last, node, own.start[op])
                found.append(
                    Piece(
                        lo, arrived, "R3", why, op, node, "join", last,
                        cause_rank=last, cause_start=lo, cause_end=arrived,
                    )
                )  # fmt: skip
        if hi > arrived:
            found += self._transfer(r, op, arrived, hi, last, arrival, gap_start)
        return found

    def _transfer(
        self, r: int, op: int, lo: int, hi: int, last: int, arrival: int, gap_start: int | None
    ) -> list[Piece]:
        """A transfer is hard, but for what a start in time would have done before the gap."""
        node = self._reasons[r].node[op]
        hard = Piece(lo, hi, "hard", "", op, node, awaited=node)
        if gap_start is None:
            return [hard]
        other = self._reasons[last]
        late_op = other.first_of_node[node]
        until = min(gap_start, arrival)
        # The step before is another step: a collective cannot start before its data is written.
        since = max(until - (hi - lo), int(self._batch.window_start[self._s, last]))
        late = [
            piece
            for piece in self._waiting(
                last, late_op, min(other.start[late_op], until), since, gap_start=None
            )
            if piece.gap_class in RECOVERABLE
        ] if since < until else []  # fmt: skip
        found: list[Piece] = []
        at = lo
        for piece in sorted(late, key=lambda p: p.start):
            end = min(at + piece.length, hi)
            if end > at:
                found.append(
                    piece._replace(start=at, end=end, op=op, node=node, is_hidden=True,
                        # The last rank may itself have waited for another one (R3).
                        culprit=last if piece.culprit == NONE else piece.culprit,
                        cause_rank=last, cause_start=piece.start, cause_end=piece.start + end - at,
                    )
                )  # fmt: skip
            at = end
        if at < hi:
            found.append(hard._replace(start=at))
        return found

    def _laggard(self, last: int, node: int, since: int) -> str:
        """Why the last rank was late: the largest class of its own wait, else what it ran."""
        other = self._reasons[last]
        op = other.first_of_node[node]
        amount: dict[str, int] = {}
        for piece in self._waiting(last, op, other.start[op], since, gap_start=None):
            if piece.gap_class != "R3":
                amount[piece.gap_class] = amount.get(piece.gap_class, 0) + piece.length
        late = {name: ns for name, ns in amount.items() if name in RECOVERABLE}
        chosen = late or amount
        if not chosen:
            return "compute"
        longest = max(chosen, key=lambda name: chosen[name])
        return "transfer" if longest == "hard" else longest

    def _collective_of(self, node: int) -> int:
        """Collective that a copy-in feeds or that a POST follows."""
        found = self._batch.program[node]
        wanted = {"AGIN": ("AG", 1), "POST": ("RS", -1)}.get(found.kind)
        if wanted is None:
            return NONE
        kind, step = wanted
        at = node + step
        while 0 <= at < len(self._batch.program):
            other = self._batch.program[at]
            if other.kind == kind and other.unit == found.unit:
                return at
            at += step
        return NONE


def _held_rule(held_by: str) -> str:
    return "Q1" if held_by == "hw_queue" else "stream"
