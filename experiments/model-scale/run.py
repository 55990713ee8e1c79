"""Time of the bound over many ranks: schedule, +1 buffer, slack, binding chains, in one process.

Usage: python experiments/model-scale/run.py [ranks] [steps] [blocks]
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

from gapscope.model import bound
from gapscope.model.rules import fsdp2
from gapscope.model.rules.book import Node


def program(blocks: int) -> list[Node]:
    """One step of FSDP2 in host issue order: a root with parameters, `blocks` resharded units."""
    units = [f"blocks.{i}" for i in range(blocks)]
    nodes = [
        Node(kind, unit, "forward", group="world" if kind == "AG" else "")
        for unit in ["", *units]
        for kind in ("AGIN", "AG", "AGOUT", "FWD")
    ]
    nodes += [Node("FWD", "", "forward", 2), Node("BWD", "", "backward")]
    last = units[-1]
    nodes += [Node("AGIN", last, "backward"), Node("AG", last, "backward", group="world")]
    for i in range(blocks - 1, -1, -1):
        nodes.append(Node("AGOUT", units[i], "backward"))
        if i:
            nodes.append(Node("AGIN", units[i - 1], "backward"))
            nodes.append(Node("AG", units[i - 1], "backward", group="world"))
        nodes.append(Node("BWD", units[i], "backward"))
        nodes.append(Node("RSIN", units[i], "backward"))
        nodes.append(Node("RS", units[i], "backward", group="world"))
        nodes.append(Node("POST", units[i], "backward"))
    nodes += [Node("BWD", "", "backward", 2), Node("RSIN", "", "backward")]
    nodes += [Node("RS", "", "backward", group="world"), Node("POST", "", "backward")]
    return [*nodes, Node("OPT", "", "optimizer")]


def main(arguments: list[str]) -> None:
    ranks, steps, blocks = (int(a) for a in [*arguments, "1024", "10", "17"][:3])
    nodes = program(blocks)
    rng = np.random.default_rng(1)
    typical = {"FWD": 5e6, "BWD": 14e6, "AG": 4e6, "RS": 4e6, "OPT": 1e6}
    mean = np.array([typical.get(node.kind, 3e4) for node in nodes])
    noise = rng.normal(1, 0.05, (len(nodes), steps, ranks))
    duration = (mean[:, None, None] * noise).astype(np.int64)
    joins = {
        n: [list(range(ranks))] for n, node in enumerate(nodes) if node.kind in fsdp2.COLLECTIVES
    }
    weights = bound.Weights(duration, joins)
    began = time.process_time()
    edges = [*fsdp2.edges(nodes), *bound.resource_edges(nodes)]
    found = bound.schedule(nodes, edges, weights)
    more = fsdp2.edges(nodes, fsdp2.Capacity().plus_one())
    bound.schedule(nodes, [*more, *bound.resource_edges(nodes)], weights)
    bound.slack(nodes, edges, weights, found)
    for step in range(steps):
        bound.binding_chain(nodes, edges, weights, found, step)
    took = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    size = f"{ranks} ranks x {steps} steps x {len(nodes)} nodes"
    print(f"{size}: {took:.2f} s of one core, {peak} MiB")


if __name__ == "__main__":
    main(sys.argv[1:])
