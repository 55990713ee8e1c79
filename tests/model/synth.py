"""Programs written as text, steps played on a machine that does what FSDP2's hooks ask of it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from random import Random
from typing import Any

import numpy as np

from gapscope.model.load import Batch, Ops
from gapscope.model.rules.book import Edge, Node
from gapscope.model.rules.fsdp2 import COLLECTIVES, COMPUTE

ROOT = "R"
BACKWARD = ("BWD", "RSIN", "RS", "AR", "POST")
OPTIMIZER = ("OPT", "COMM")
# Stream ids of the lab's captures.
S0, CI, AG, RS, AR = 7, 17, 21, 25, 29


# ------------------------------------------------------------------------------ programs as text


def program(text: str) -> tuple[Node, ...]:
    """Nodes in host issue order: `AG(1)`, `AG'(1)` in backward, `FWD(R)#2` for the second of a step."""
    found = []
    seen: Counter[tuple[str, str, str]] = Counter()
    for name in re.sub(r"--.*", "", text).split():
        match = re.fullmatch(r"([A-Z]+)('?)\((\w+)\)(?:#(\d+))?", name)
        assert match, name
        kind, prime, unit, turn = match.groups()
        seen[kind, prime, unit] += 1
        assert seen[kind, prime, unit] == int(turn or 1), (
            f"{name} is number {seen[kind, prime, unit]}"
        )
        found.append(node(kind, unit, is_backward=bool(prime), turn=int(turn or 1)))
    return tuple(found)


def node(kind: str, unit: str, *, is_backward: bool = False, turn: int = 1) -> Node:
    phase = "backward" if is_backward or kind in BACKWARD else "forward"
    if kind in OPTIMIZER:
        phase = "optimizer"
    group = {"AR": "replicas", "COMM": "shards"}.get(kind, "shards" if kind in COLLECTIVES else "")
    return Node(kind, "" if unit == ROOT else unit, phase, turn, group)


def names(of: Sequence[Node]) -> list[str]:
    return [one.name.replace("(root)", f"({ROOT})") for one in of]


def edge_lines(of: Sequence[Node], edges: Iterable[Edge]) -> set[str]:
    """Edges as the rule book would print them: `F2 (a) AGIN(1) -> AG(1)`."""
    name = names(of)
    return {f"{e.rule} ({e.edge_class}) {name[e.before]} -> {name[e.after]}" for e in edges}


def lines(text: str) -> set[str]:
    """The same, from a table of them: one a line, comments behind `--`."""
    cut = (re.sub(r"--.*", "", line) for line in text.splitlines())
    return {" ".join(line.split()) for line in cut if line.strip()}


# ------------------------------------------------------------------------------ batches from ops


@dataclass
class Op:
    """One device op, by node name; `kind` is kernel, memcpy or memset."""

    node: str
    stream: int
    start: int
    end: int
    issued: int | None = None
    kind: str = "kernel"
    name: int = 0


def batch(
    of: Sequence[Node],
    ops: dict[tuple[int, int], list[Op]],
    *,
    joins: dict[str, list[list[int]]] | None = None,
    window: tuple[int, int] | None = None,
    boundary: Sequence[int] = (),
) -> Batch:
    """What `load` would make of these ops; collectives join over all ranks unless told otherwise."""
    place = {name: i for i, name in enumerate(names(of))}
    steps, ranks = (sorted({at[i] for at in ops}) for i in (0, 1))
    shape = (len(of), len(steps), len(ranks))
    start, end, busy, compute = (np.zeros(shape, np.int64) for _ in range(4))
    columns = {}
    for (s, r), rows in ops.items():
        columns[s, r] = _columns(of, rows, place)
        for key, group in groupby(
            sorted(rows, key=lambda o: place[o.node]), lambda o: place[o.node]
        ):
            mine = list(group)
            start[key, s, r] = min(o.start for o in mine)
            end[key, s, r] = max(o.end for o in mine)
            busy[key, s, r] = union(mine)
            compute[key, s, r] = union([o for o in mine if is_compute(of[key], o)])
    finish = np.array([[max(o.end for o in ops[s, r]) for r in ranks] for s in steps])
    begin = np.zeros_like(finish)
    if window is not None:
        begin, finish = begin + window[0], np.zeros_like(finish) + window[1]
    everyone = [list(range(len(ranks)))]
    joined = {
        i: (joins or {}).get(name, everyone)
        for name, i in place.items()
        if of[i].kind in COLLECTIVES
    }
    return Batch(
        ranks=list(ranks), steps=list(steps), is_boundary=np.isin(steps, list(boundary)), program=tuple(of),
        window_start=begin, window_end=finish, node_start=start, node_end=end, node_busy=busy,
        node_compute=compute, joins=joined, unmatched=set(), ops=columns,
        explained=tuple(range(len(ranks))),
    )  # fmt: skip


def is_compute(of: Node, op: Op) -> bool:
    return of.kind in COMPUTE and op.kind == "kernel"


def union(ops: Iterable[Op]) -> int:
    total = until = 0
    for op in sorted(ops, key=lambda o: o.start):
        total += max(0, op.end - max(op.start, until))
        until = max(until, op.end)
    return total


def _columns(of: Sequence[Node], rows: Sequence[Op], place: dict[str, int]) -> Ops:
    at = [place[o.node] for o in rows]
    return Ops(
        np.arange(len(rows)),
        np.array(at, np.int64),
        np.array([o.stream for o in rows], np.int64),
        np.array([o.start for o in rows], np.int64),
        np.array([o.end for o in rows], np.int64),
        np.array([o.start if o.issued is None else o.issued for o in rows], np.int64),
        np.array([o.kind == "memcpy" for o in rows]),
        np.array([is_compute(of[i], o) for i, o in zip(at, rows, strict=True)]),
        np.array([of[i].kind in COLLECTIVES for i in at]),
        np.array([o.name for o in rows], np.int64),
    )


# ------------------------------------------------------------------------------ a machine


@dataclass(frozen=True)
class Model:
    """A model under `fully_shard`: what decides the order in which its hooks issue work."""

    blocks: int = 2
    has_root_parameters: bool = True
    reshard: bool = True
    prefetch: int = 0  # explicit forward prefetch, in units; 0: the implicit one
    microbatches: int = 1
    reduces_each_microbatch: bool = True
    is_hybrid: bool = False
    clips: bool = False
    token_group: bool = False  # the embedding is a group of its own: its input needs no gradient


Length = Callable[[str, int], int]  # (kind of node, rank) -> ns


@dataclass
class Machine:
    """Streams in order, events, communicators, joins, hardware queues: no rule of the model.

    `wait` is `wait_stream` and `wait_event`: whatever is launched on the stream later waits.
    """

    ranks: int = 1
    length: Length = lambda kind, rank: 10
    pause: Length = lambda kind, rank: 0  # host time before each launch
    kernels: Callable[[str], int] = lambda kind: 1  # ops of a node
    queues: tuple[frozenset[int], ...] = ()
    until: str = "start"  # what of an op frees its queue
    floor: int = 0
    nodes: list[Node] = field(default_factory=list)
    ops: list[list[Op]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ops = [[] for _ in range(self.ranks)]
        self._free: dict[Any, Any] = defaultdict(lambda: np.zeros(self.ranks, np.int64))
        self._host = np.zeros(self.ranks, np.int64)
        self._started: dict[int, tuple[int, Any]] = {}
        self._seen: Counter[tuple[str, str, bool]] = Counter()
        self._count = 0

    def tail(self, stream: int) -> Any:
        return self._free[stream].copy()

    def wait(self, stream: int, event: Any) -> None:
        self._free[stream] = np.maximum(self._free[stream], event)

    def launch(self, kind: str, unit: str, stream: int, *, is_backward: bool = False) -> Any:
        """One node; returns the event recorded behind it."""
        self._seen[kind, unit, is_backward] += 1
        made = node(kind, unit, is_backward=is_backward, turn=self._seen[kind, unit, is_backward])
        self.nodes.append(made)
        name = names([made])[0]
        for op in range(self.kernels(kind) if kind not in COLLECTIVES else 1):
            is_copy = kind in ("AGOUT", "RSIN") and op == 0 and self.kernels(kind) > 1
            self._host = self._host + [self.pause(kind, r) for r in range(self.ranks)]
            start = np.maximum(self._free[stream], self._host)
            if not is_copy:
                start = np.maximum(start, self._dispatched_before(stream))
            long = np.array([self.length(kind, r) for r in range(self.ranks)])
            if kind in COLLECTIVES:
                link = "link", made.group
                start = np.maximum(start, self._free[link]) + self.floor
                end = np.full(self.ranks, start.max() + long.max())
                self._free[link] = end
            else:
                start = start + self.floor
                end = start + long
            self._free[stream] = end
            self._count += 1
            if not is_copy:
                self._started[stream] = (self._count, start if self.until == "start" else end)
            for r in range(self.ranks):
                self.ops[r].append(
                    Op(name, stream, int(start[r]), int(end[r]), int(self._host[r]), "memcpy" if is_copy else "kernel")
                )  # fmt: skip
        return self._free[stream].copy()

    def _dispatched_before(self, stream: int) -> Any:
        heads = [
            max(found, key=lambda item: item[0])[1]
            for queue in self.queues
            if stream in queue
            and (found := [self._started[s] for s in queue if s != stream and s in self._started])
        ]
        return np.maximum.reduce(heads) if heads else np.zeros(self.ranks, np.int64)


class Hooks:
    """The hooks of `fully_shard` in the order of the rule book's sections 2.1, 2.3 and 5."""

    def __init__(self, machine: Machine, model: Model) -> None:
        self.m = machine
        self.model = model
        self._gathered: dict[str, Any] = {}
        self._kept: Any = None  # all_gather_state: the copy-out before this one
        self._rs_event: Any = None
        self._post: list[Any] = []

    def step(self) -> Machine:
        for k in range(self.model.microbatches):
            is_last = k == self.model.microbatches - 1
            self._pass(reduces=is_last or self.model.reduces_each_microbatch)
        self._finish()
        return self.m

    def _units(self) -> list[str]:
        embedding = ["tok"] if self.model.token_group else []
        return [*embedding, *(str(i + 1) for i in range(self.model.blocks))]

    def _pass(self, *, reduces: bool) -> None:
        units = self._units()
        # The root's first hook; the callback had S0 wait for the reductions.
        for stream in (CI, AG):
            self.m.wait(stream, self.m.tail(S0))
            for event in self._post[-1:]:
                self.m.wait(stream, event)
        if self.model.has_root_parameters:
            self._unshard(ROOT)
            self._wait_for_unshard(ROOT)
        if self.model.has_root_parameters and not self.model.token_group:
            self.m.launch("FWD", ROOT, S0)
        for i, unit in enumerate(units):
            self._unshard(unit)
            self._wait_for_unshard(unit)
            for ahead in units[i + 1 : i + 1 + self.model.prefetch]:
                self._unshard(ahead)
            self.m.launch("FWD", unit, S0)
        self.m.launch("FWD", ROOT, S0)
        if self._kept is not None:  # the root's last hook
            self._buffer_free(self._kept)
            self._kept = None
        self._backward(units, reduces=reduces)

    def _backward(self, units: list[str], *, reduces: bool) -> None:
        self.m.launch("BWD", ROOT, S0)
        order = units[::-1]
        if self.model.has_root_parameters:
            self._prefetch_backward(order[:1])  # pre_backward of the root
        for i, unit in enumerate(order):
            self._prefetch_backward([unit])  # its own, unless asked for already
            if self.model.reshard:
                self._wait_for_unshard(unit, is_backward=True)
                self._prefetch_backward(order[i + 1 : i + 2])
            self.m.launch("BWD", unit, S0)
            if reduces and unit != "tok":
                self._post_backward(unit)
        late = ["tok"] if self.model.token_group else []
        if self.model.has_root_parameters:
            if not self.model.token_group:
                self.m.launch("BWD", ROOT, S0)  # the embedding
            late.append(ROOT)
        if reduces:  # the root callback
            for unit in late:
                self._post_backward(unit)

    def _unshard(self, unit: str, *, is_backward: bool = False) -> None:
        if unit in self._gathered:
            return
        self.m.launch("AGIN", unit, CI, is_backward=is_backward)
        self.m.wait(AG, self.m.tail(CI))
        self._gathered[unit] = self.m.launch("AG", unit, AG, is_backward=is_backward)

    def _prefetch_backward(self, units: list[str]) -> None:
        if self.model.reshard:
            for unit in units:
                self._unshard(unit, is_backward=True)

    def _wait_for_unshard(self, unit: str, *, is_backward: bool = False) -> None:
        self.m.wait(S0, self._gathered.pop(unit))
        copied = self.m.launch("AGOUT", unit, S0, is_backward=is_backward)
        if is_backward:
            self._buffer_free(copied)
            return
        if self._kept is not None:
            self._buffer_free(self._kept)
        self._kept = copied

    def _buffer_free(self, event: Any) -> None:
        self.m.wait(CI, event)
        self.m.wait(AG, event)

    def _post_backward(self, unit: str) -> None:
        if self._rs_event is not None:
            self.m.wait(S0, self._rs_event)
        self.m.launch("RSIN", unit, S0)
        self.m.wait(RS, self.m.tail(S0))
        self._rs_event = self.m.launch("RS", unit, RS)
        stream = RS
        if self.model.is_hybrid:
            self.m.wait(AR, self.m.tail(RS))
            self.m.launch("AR", unit, AR)
            stream = AR
        self._post.append(self.m.launch("POST", unit, stream))

    def _finish(self) -> None:
        for event in [*self._post, self._rs_event]:
            if event is not None:
                self.m.wait(S0, event)
        self.m.launch("OPT", ROOT, S0)
        if self.model.clips:
            self.m.launch("COMM", ROOT, S0)
            self.m.launch("OPT", ROOT, S0)


def run(model: Model, **machine: Any) -> Machine:
    """One step of the model on a machine."""
    return Hooks(Machine(**machine), model).step()


def batch_of(machines: Sequence[Machine], **options: Any) -> Batch:
    """One step a machine, all of one program."""
    ops = {(s, r): rows for s, machine in enumerate(machines) for r, rows in enumerate(machine.ops)}
    return batch(machines[0].nodes, ops, **options)


def random_lengths(seed: int, most: int = 40, least: int = 1) -> Length:
    random = Random(seed)
    return lambda kind, rank: random.randint(least, most)
