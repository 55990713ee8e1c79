"""Why an op of the run could not start earlier: its rule producers, its issue, and what held it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from gapscope.model.queues import previous_kernel
from gapscope.model.replay import Queue
from gapscope.model.rules.book import Edge, Node
from gapscope.model.rules.fsdp2 import COLLECTIVES, ENGINE, stream_waits

if TYPE_CHECKING:
    from gapscope.model.load import Batch

NONE = -1
LONG_AGO = -(1 << 60)
# A hold that ends this long after the op started did not hold it: a counter-example, not a reason.
CLOCK_QUANTUM_NS = 2_000
# Kinds of the edge that an op started behind, each with its own launch floor.
FLOOR_KINDS = ("same_stream", "cross_stream", "after_copy", "issue")


class Reason(NamedTuple):
    """Times in aligned ns; positions are those of the op in its rank's issue order."""

    rule_ns: int
    rule_op: int
    rule: str
    issued_ns: int
    held_ns: int
    held_op: int
    held_by: str
    floor_kind: str

    @property
    def ready_ns(self) -> int:
        return max(self.rule_ns, self.issued_ns, self.held_ns)


class Producers:
    """What each node of a program waits for by rule, the same on every rank and step."""

    def __init__(self, program: Sequence[Node], edges: Sequence[Edge]) -> None:
        self.kind = [node.kind for node in program]
        self.into: dict[int, list[Edge]] = {}
        for edge in edges:
            self.into.setdefault(edge.after, []).append(edge)
        self.waits: dict[int, list[int]] = {}
        for edge in stream_waits(program):
            self.waits.setdefault(edge.after, []).append(edge.before)


class OfStep(dict[int, "Reasons"]):
    """Reasons of one step by rank position, each made when it is first asked for."""

    def __init__(self, batch: Batch, producers: Producers, queues: Sequence[Queue], s: int) -> None:
        super().__init__()
        self._made_of = (batch, producers, queues, s)

    def __missing__(self, r: int) -> Reasons:
        found = self[r] = Reasons(*self._made_of, r)
        return found


class Reasons:
    """Reasons of the ops of one rank and step, worked out when asked for."""

    def __init__(
        self, batch: Batch, producers: Producers, queues: Sequence[Queue], s: int, r: int
    ) -> None:
        import numpy as np

        ops = self.ops = batch.ops[s, r]
        self.op_id = ops.op_id.tolist()
        self.node = ops.node.tolist()
        self.start = ops.start.tolist()
        self.end = ops.end.tolist()
        self.issued = ops.issued.tolist()
        self.is_copy = ops.is_copy.tolist()
        self.is_compute = ops.is_compute.tolist()
        self.is_collective = ops.is_collective.tolist()
        stream = ops.stream.tolist()
        self.kind = [producers.kind[n] for n in self.node]
        self._before_on_stream = [NONE] * len(ops)
        self._before_in_node = [NONE] * len(ops)
        self._before_on_engine = [NONE] * len(ops)
        self._before_on_link = [NONE] * len(ops)
        self.first_of_node: dict[int, int] = {}
        self.last_of_node: dict[int, int] = {}
        last_stream: dict[int, int] = {}
        last_link: dict[str, int] = {}
        last_engine = NONE
        for i, node in enumerate(self.node):
            self._before_on_stream[i] = last_stream.get(stream[i], NONE)
            last_stream[stream[i]] = i
            if node in self.last_of_node:
                self._before_in_node[i] = self.last_of_node[node]
            self.first_of_node.setdefault(node, i)
            if self.end[i] >= self.end[self.last_of_node.get(node, i)]:
                self.last_of_node[node] = i
            if self.kind[i] in ENGINE:
                self._before_on_engine[i] = last_engine
                last_engine = i
            if self.kind[i] in COLLECTIVES:
                group = batch.program[node].group
                self._before_on_link[i] = last_link.get(group, NONE)
                last_link[group] = i
        self._producers = producers
        # For each queue the last kernel issued before the op on any other stream of it.
        self._heads: list[tuple[str, list[int]]] = []
        for queue in queues:
            heads = np.full(len(ops), NONE)
            on_queue = np.isin(ops.stream, list(queue.streams))
            for other in queue.streams:
                before = previous_kernel(ops, other)
                heads = np.where(on_queue & (ops.stream != other), np.maximum(heads, before), heads)
            heads = np.where(ops.is_copy, NONE, heads)
            self._heads.append((queue.until, heads.tolist()))
        self._known: dict[int, Reason] = {}

    def __len__(self) -> int:
        return len(self.op_id)

    def of(self, i: int) -> Reason:
        found = self._known.get(i)
        if found is None:
            found = self._known[i] = self._work_out(i)
        return found

    def _work_out(self, i: int) -> Reason:
        rule_ns, rule_op, rule = LONG_AGO, NONE, ""
        node = self.node[i]
        is_first = self.first_of_node[node] == i
        candidates = [
            (self._before_in_node[i], "node"),
            (self._before_on_engine[i], "engine"),
            (self._before_on_link[i], "link"),
        ]
        if is_first:
            # Before the others: of two that end together, the authored rule is named.
            candidates[:0] = [
                (self.last_of_node[edge.before], edge.rule)
                for edge in self._producers.into.get(node, ())
            ]
        for op, name in candidates:
            if op != NONE and self.end[op] > rule_ns:
                rule_ns, rule_op, rule = self.end[op], op, name
        held_ns, held_op, held_by = LONG_AGO, NONE, ""
        before = self._before_on_stream[i]
        if before != NONE and self.end[before] > rule_ns:
            held_ns, held_op, held_by = self.end[before], before, "stream"
        for producer in self._producers.waits.get(node, ()) if is_first else ():
            op = self.last_of_node[producer]
            if max(held_ns, rule_ns) < self.end[op] <= self.start[i] + CLOCK_QUANTUM_NS:
                held_ns, held_op, held_by = self.end[op], op, "stream"
        for until, heads in self._heads:
            head = heads[i]
            if head == NONE:
                continue
            freed = self.start[head] if until == "start" else self.end[head]
            if held_ns < freed <= self.start[i] + CLOCK_QUANTUM_NS:
                held_ns, held_op, held_by = freed, head, "hw_queue"
        issued = self.issued[i]
        ready = max(rule_ns, issued, held_ns)
        if before != NONE and self.end[before] >= ready:
            floor_kind = "after_copy" if self.is_copy[before] else "same_stream"
        elif issued >= ready:
            floor_kind = "issue"
        else:
            floor_kind = "cross_stream"
        return Reason(rule_ns, rule_op, rule, issued, held_ns, held_op, held_by, floor_kind)
