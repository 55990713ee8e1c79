"""T_lb: the earliest schedule of the measured work under the rules, and what pins it.

Weights are as measured. A compute node lasts its own busy union; copies of the compute stream and
the optimizer occupy the compute engine too; AGIN and POST occupy none; a collective takes its
latest aligned end less its latest aligned start. Engine and communicators serve in host issue
order, all ranks begin at 0, the host releases everything at once. It is a program-order bound,
reachable for these weights, never "the minimum possible".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapscope.model.rules.book import Edge, Node
from gapscope.model.rules.fsdp2 import COLLECTIVES, ENGINE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gapscope.model.load import Batch

    Int = NDArray[np.int64]

ORIGIN = -1


@dataclass(frozen=True)
class Weights:
    """What each node takes, [node, step, rank] ns, and who joins in a collective."""

    duration: Int
    joins: dict[int, list[list[int]]]


@dataclass(frozen=True)
class Schedule:
    """Start and end of each node [node, step, rank], ns from the common origin 0."""

    start: Int
    end: Int

    @property
    def t_lb(self) -> Int:
        """Length of the schedule on each rank [step, rank], ns."""
        longest: Int = self.end.max(axis=0)
        return longest


def weights(batch: Batch, *, by_ends: bool = True) -> Weights:
    """Measured weights. T(c) is its largest end less its latest start, or its shortest participant.

    The first needs a clock that the ranks share; the second needs none, but misses what the ends
    of one collective differ by. A collective without partners lasts as long as it did.
    """
    import numpy as np

    duration = np.array(batch.node_busy)
    for node, groups in batch.joins.items():
        start, end = batch.node_start[node], batch.node_end[node]
        for group in groups:
            if by_ends:
                transfer = end[:, group].max(axis=1) - start[:, group].max(axis=1)
            else:
                transfer = (end[:, group] - start[:, group]).min(axis=1)
            duration[node][:, group] = np.maximum(transfer, 1)[:, None]
    return Weights(duration, batch.joins)


def resource_edges(
    program: Sequence[Node], *, engine: bool = True, link: bool = True
) -> list[Edge]:
    """Order of the compute engine and of each communicator: host issue order."""
    found: list[Edge] = []
    last: dict[str, int] = {}
    for here, node in enumerate(program):
        if node.kind in ENGINE and engine:
            resource, rule = "engine", "engine"
        elif node.kind in COLLECTIVES and link:
            resource, rule = f"link {node.group}", "link"
        else:
            continue
        if resource in last:
            found.append(Edge(last[resource], here, rule, "resource"))
        last[resource] = here
    return found


def schedule(program: Sequence[Node], edges: Sequence[Edge], weights: Weights) -> Schedule:
    """Max-plus fixpoint of the edges: one pass in host issue order, all steps and ranks at once."""
    import numpy as np

    start = np.zeros_like(weights.duration)
    end = np.zeros_like(weights.duration)
    into = predecessors(len(program), edges)
    for here in range(len(program)):
        for edge in into[here]:
            np.maximum(start[here], end[edge.before], out=start[here])
        groups = weights.joins.get(here)
        if groups is None:
            np.add(start[here], weights.duration[here], out=end[here])
            continue
        for group in groups:
            last = start[here][:, group].max(axis=1) if len(group) > 1 else start[here][:, group[0]]
            end[here][:, group] = last[:, None] + weights.duration[here][:, group]
    return Schedule(start, end)


def predecessors(count: int, edges: Sequence[Edge]) -> list[list[Edge]]:
    into: list[list[Edge]] = [[] for _ in range(count)]
    for edge in edges:
        if edge.before >= edge.after:
            message = f"a rule points backwards in host issue order: {edge}"
            raise ValueError(message)
        into[edge.after].append(edge)
    return into


def slack(program: Sequence[Node], edges: Sequence[Edge], weights: Weights, found: Schedule) -> Int:
    """How much later each node could end without a longer step, [node, step, rank] ns."""
    import numpy as np

    latest = np.empty_like(found.end)
    latest[:] = found.t_lb.max(axis=1)[None, :, None]
    out: list[list[int]] = [[] for _ in program]
    for edge in edges:
        out[edge.before].append(edge.after)
    latest_start = np.empty_like(found.end)
    for here in range(len(program) - 1, -1, -1):
        for after in out[here]:
            np.minimum(latest[here], latest_start[after], out=latest[here])
        groups = weights.joins.get(here)
        if groups is None:
            latest_start[here] = latest[here] - weights.duration[here]
            continue
        # All participants end together, so the most urgent one decides for each.
        for group in groups:
            own = latest[here][:, group].min(axis=1)
            latest[here][:, group] = own[:, None]
            latest_start[here][:, group] = own[:, None] - weights.duration[here][:, group]
    return latest - found.end


@dataclass(frozen=True)
class Link:
    """One node of the binding chain, and the rule that ties it to the one before (None: origin)."""

    node: int
    rank: int
    rule: str | None


def binding_chain(
    program: Sequence[Node], edges: Sequence[Edge], weights: Weights, found: Schedule, step: int
) -> list[Link]:
    """The chain of nodes that pins the longest rank's schedule, first to last."""
    into = predecessors(len(program), edges)
    rank = int(found.t_lb[step].argmax())
    here = int(found.end[:, step, rank].argmax())
    chain: list[Link] = []
    while True:
        for group in weights.joins.get(here, ()):
            if rank in group:
                rank = max(group, key=lambda r: (int(found.start[here, step, r]), r == rank))
        tied = [
            e
            for e in into[here]
            if found.end[e.before, step, rank] == found.start[here, step, rank]
        ]
        # At a tie a data edge tells more than a resource.
        tied.sort(key=lambda e: (e.edge_class == "resource", e.edge_class, -e.before))
        if not tied or found.start[here, step, rank] == 0:
            chain.append(Link(here, rank, None))
            return chain[::-1]
        chain.append(Link(here, rank, tied[0].rule))
        here = tied[0].before
