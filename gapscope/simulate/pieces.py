"""Why compute was absent, gap by gap, from what the simulator knows about each start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapscope.simulate.engine import Timing
from gapscope.simulate.order import Order
from gapscope.simulate.program import Program

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

# Shorter gaps are what starting costs, a memset, or the unpacking of a buffer.
SHORTEST_NS = 100_000.0


@dataclass(frozen=True)
class Piece:
    """Part of a gap, true ns: `op` is the one that waited, or that ran."""

    start: float
    end: float
    wait_class: str
    place: str
    op: int


class Walk:
    """Walks back from the op that ends a gap through whatever held each start."""

    def __init__(self, program: Program, order: Order) -> None:
        self.ops = program.ops
        self.before: dict[int, int] = {}
        self.events: dict[int, tuple[int, ...]] = {}
        for segment in order.segments:
            for op in range(segment.first, segment.stop):
                self.before[op] = segment.before if op == segment.first else op - 1
            self.events[segment.first] = segment.events
        self.collectives = [n for n, op in enumerate(self.ops) if op.collective is not None]
        self.compute = [n for n, op in enumerate(self.ops) if op.work == "compute"]

    def step(self, timing: Timing, rank: int, window_start: float) -> list[Piece]:
        """All pieces of one step of one rank, in order of time."""
        import numpy as np

        found: list[Piece] = []
        # Compute ops follow each other on one stream.
        reached = np.append(window_start, timing.end[self.compute[:-1], rank])
        for number in np.flatnonzero(timing.start[self.compute, rank] - reached > SHORTEST_NS):
            gap = self._gap(timing, rank, float(reached[number]), self.compute[number])
            found += sorted(gap, key=lambda one: one.start)
        return found

    def _gap(self, timing: Timing, rank: int, begin: float, op: int) -> list[Piece]:
        found: list[Piece] = []
        at = float(timing.start[op, rank])

        def back_to(time: float, wait_class: str, place: str, who: int) -> None:
            nonlocal at
            time = max(time, begin)
            if time < at:
                found.append(Piece(time, at, wait_class, place, who))
                at = time

        while at > begin:
            issued = float(timing.issued[op, rank])
            producer, ready = self._producer(timing, rank, op)
            held, place = self._held(timing, rank, op)
            back_to(max(issued, ready, held), "floor", "", op)
            back_to(max(issued, ready), "R2", place, op)
            back_to(ready, "R1", "", op)
            if at <= begin or producer < 0:
                back_to(begin, "before", "", op)
                break
            if self.ops[producer].collective is not None:
                back_to(float(timing.last_arrival[producer, rank]), "transfer", "", producer)
                back_to(float(timing.start[producer, rank]), "R3", "", producer)
            else:
                back_to(float(timing.start[producer, rank]), "work", "", producer)
            op = producer
        return found

    def _producer(self, timing: Timing, rank: int, op: int) -> tuple[int, float]:
        """What a rule puts before the op and ends last: also the collective before a collective."""
        before = self.before[op]
        found = [(float(timing.end[one, rank]), one) for one in self.events.get(op, ()) if one >= 0]
        if before < 0 or self.ops[before].stream == self.ops[op].stream:
            found.append((float(timing.on_stream[op, rank]), before))
        if self.ops[op].collective is not None:
            earlier = [one for one in self.collectives if one < op]
            before = earlier[-1] if earlier else -1
            found.append((float(timing.on_communicator[op, rank]), before))
        end, who = max(found, default=(float("-inf"), -1))
        return who, end

    def _held(self, timing: Timing, rank: int, op: int) -> tuple[float, str]:
        """What no rule puts before the op: its queue, or a stream that is not its own."""
        found = [(float(timing.on_queue[op, rank]), "hw_queue")]
        before = self.before[op]
        if before >= 0 and self.ops[before].stream != self.ops[op].stream:
            found.append((float(timing.on_stream[op, rank]), "stream"))
        return max(found)
