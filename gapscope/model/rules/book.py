"""What a rule pack is made of: nodes, rules that connect them, and the edges that follow."""

from __future__ import annotations

from dataclasses import dataclass

# What an edge stands for. Only data and buffers are in the bound; the rest holds in a run alone.
CLASSES = {
    "a": "data",
    "b": "lifetime of a buffer",
    "c": "order of a stream, queue or communicator",
    "d": "order of the host",
    "e": "synchronization",
}


@dataclass(frozen=True)
class Node:
    """One node of a step's program: a kind of the rule book, on a unit, for the nth time in the step."""

    kind: str
    unit: str
    phase: str
    turn: int = 1
    group: str = ""  # process group of a collective

    @property
    def name(self) -> str:
        prime = "'" if self.phase == "backward" and self.kind in ("AGIN", "AG", "AGOUT") else ""
        again = f"#{self.turn}" if self.turn > 1 else ""
        return f"{self.kind}{prime}({self.unit or 'root'}){again}"


@dataclass(frozen=True)
class Rule:
    """One line of the rule book: what must end before what starts, why, and where torch does it."""

    id: str
    before: str
    after: str
    edge_class: str
    reason: str
    source: str


@dataclass(frozen=True)
class Edge:
    """`before` must end before `after` starts; both are positions in the program."""

    before: int
    after: int
    rule: str
    edge_class: str
