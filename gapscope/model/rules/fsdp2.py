"""FSDP2 (`fully_shard`), torch 2.9 to 2.13: the rules of one training step.

A program is the list of nodes of one rank and step in host issue order. `edges` connects it by
the rules below and nothing else: no time of the run enters. File names are those of
`torch/distributed/fsdp/_fully_shard/`, lines those of 2.13.0. Kinds of nodes:

    AGIN   copy-in of a unit's shards, cast included    AG    all-gather kernel
    AGOUT  copy-out into the unsharded parameters       FWD   forward compute    BWD  backward compute
    RSIN   copy-in of gradients (chunk_cat)             RS    reduce-scatter     AR   all-reduce (HSDP)
    POST   what follows the reduction on its stream     OPT   clipping, optimizer, zero_grad
    COMM   a collective that no label of FSDP2 names
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gapscope.model.rules.book import Edge, Node, Rule

NAME = "fsdp2"
TORCH_VERSIONS = ("2.9", "2.10", "2.11", "2.12", "2.13")

RULES = (
    Rule("F1", "OPT", "AGIN", "a", "a gather reads what the last optimizer step wrote; the step begins there",
         "_fsdp_state.py:_root_pre_forward"),
    Rule("F2", "AGIN", "AG", "a", "the all-gather sends what was copied in",
         "_fsdp_collectives.py:362 AG.wait_stream(CI)"),
    Rule("F3", "AG", "AGOUT", "a", "the copy-out reads what was gathered",
         "_fsdp_collectives.py:446 S0.wait_event(all_gather_event)"),
    Rule("F4", "AGOUT", "FWD", "a", "forward computes with the gathered parameters", "order of the compute stream"),
    Rule("FF", "FWD", "FWD", "a", "a layer reads what the layer before it wrote", "order of the compute stream"),
    Rule("FB", "FWD", "BWD", "a", "backward begins with the loss", "autograd"),
    Rule("BB", "BWD", "BWD", "a", "gradients flow from layer to layer", "autograd"),
    Rule("F6", "AGOUT", "AGIN", "b", "two gather buffers in forward: the one before last must be copied out",
         "_fsdp_param_group.py:wait_for_unshard, all_gather_state"),
    Rule("F9", "AGOUT", "AGIN", "b", "the root's last hook waits for every copy-out of forward",
         "_fsdp_state.py:_post_forward"),
    Rule("B1", "AG", "AGOUT", "a", "the copy-out reads what was gathered again", "_fsdp_collectives.py:446"),
    Rule("B1b", "AGOUT", "BWD", "a", "backward computes with the gathered parameters",
         "order of the compute stream"),
    Rule("B2", "AGOUT", "AGIN", "b", "one gather buffer in backward: it must be copied out",
         "_fsdp_param_group.py:486"),
    Rule("B4", "BWD", "RSIN", "a", "gradients of the unit are complete", "order of the compute stream"),
    Rule("B5", "RS", "RSIN", "b", "K reduce-scatter inputs alive at once (K = 1)",
         "_fsdp_param_group.py:post_backward S0.wait_event(rs_event)"),
    Rule("B6", "RSIN", "RS", "a", "the reduce-scatter sends what was copied in",
         "_fsdp_collectives.py:607 RS.wait_stream(S0)"),
    Rule("B9", "RS", "POST", "a", "the result is cast or accumulated", "order of the reduce stream"),
    Rule("B9r", "RS", "AR", "a", "the shard is reduced over the replicas", "_fsdp_collectives.py:654 AR.wait_stream(RS)"),
    Rule("B9p", "AR", "POST", "a", "the result is cast or accumulated", "order of the all-reduce stream"),
    Rule("B11", "POST", "OPT", "a", "the optimizer reads the reduced gradients",
         "_fsdp_state.py:_root_post_backward_final_callback"),
    Rule("B12", "RS", "OPT", "b", "the callback waits for the reductions that are left",
         "_fsdp_state.py:_root_post_backward_final_callback"),
    Rule("G1", "POST", "POST", "a", "gradients of one unit add up over microbatches", "_fsdp_collectives.py:foreach_reduce"),
    Rule("N1", "OPT", "COMM", "a", "a norm is reduced over what was computed", "torch.nn.utils.clip_grad_norm_"),
    Rule("N2", "COMM", "OPT", "a", "the optimizer uses the reduced norm", "torch.nn.utils.clip_grad_norm_"),
    # Artefacts: they hold in a run, never in the bound.
    Rule("F1'", "BWD", "AGIN", "c", "the first gather of a microbatch waits for the whole compute stream, not for the optimizer alone",
         "_fsdp_state.py:_root_pre_forward CI.wait_stream(S0)"),
    Rule("F5", "FWD", "AGOUT", "c", "copies share the compute stream", "order of the compute stream"),
    Rule("F7", "AG", "AG", "c", "gathers share a stream and a communicator", "order of the all-gather stream"),
    Rule("F8", "FWD", "AGIN", "d", "the gather is issued when the host reaches the unit", "_fsdp_state.py:_pre_forward"),
    Rule("B3", "AGOUT", "AGIN", "d", "the next gather is issued by the hook of this unit",
         "_fsdp_param_group.py:_backward_prefetch"),
    Rule("B5'", "RS", "AGOUT", "c", "the wait for a reduce-scatter sits on the compute stream",
         "_fsdp_param_group.py:post_backward"),
    Rule("B7", "POST", "RS", "c", "what follows a reduction shares its stream", "order of the reduce stream"),
    Rule("B8", "AG", "RS", "c", "one communicator serves in host issue order", "NCCL enqueue.cc:ncclLaunchPrepare"),
    Rule("B10", "RSIN", "AGOUT", "c", "copies share the compute stream", "order of the compute stream"),
    Rule("Q1", "any", "any", "c", "streams that share a hardware queue dispatch in host issue order",
         "CUDA_DEVICE_MAX_CONNECTIONS"),
)  # fmt: skip
RULE = {rule.id: rule for rule in RULES}

COLLECTIVES = frozenset({"AG", "RS", "AR", "COMM"})
# Nodes that occupy the compute engine; what they do besides computing is `work`.
ENGINE = frozenset({"FWD", "BWD", "OPT", "AGOUT", "RSIN"})
COMPUTE = frozenset({"FWD", "BWD", "OPT"})


@dataclass(frozen=True)
class Capacity:
    """Buffers that may be in use at once: what the (b) rules allow."""

    forward_gathers: int = 2
    backward_gathers: int = 1
    reduce_inputs: int = 1

    def plus_one(self) -> Capacity:
        return Capacity(self.forward_gathers + 1, self.backward_gathers + 1, self.reduce_inputs + 1)


def edges(program: Sequence[Node], capacity: Capacity | None = None) -> list[Edge]:
    """Every (a) and (b) edge of a program, each with its rule."""
    found = [
        *_gathers(program),
        *_gather_buffers(program, capacity or Capacity()),
        *_layers(program),
        *_reductions(program, capacity or Capacity()),
        *_optimizer(program),
    ]
    unique = {(before, after): rule for before, after, rule in reversed(found)}
    return [
        Edge(before, after, rule, RULE[rule].edge_class)
        for (before, after), rule in sorted(
            unique.items(), key=lambda item: (item[0][1], item[0][0])
        )
    ]


def stream_waits(program: Sequence[Node]) -> list[Edge]:
    """Rule F1': what ran before a later forward pass of the step and holds its first gather.

    The finalizing callback has the compute stream wait for the reductions, so these hold it too.
    """
    found: list[Edge] = []
    last: dict[str, int] = {}
    is_behind = False
    for here, node in enumerate(program):
        if node.phase == "backward":
            is_behind = True
            if node.kind in ENGINE or node.kind == "POST":
                last["post" if node.kind == "POST" else "engine"] = here
        elif node.kind == "AGIN" and is_behind:
            found += [Edge(before, here, "F1'", "c") for before in sorted(last.values())]
            is_behind = False
    return found


_Found = tuple[int, int, str]


def _gathers(program: Sequence[Node]) -> Iterator[_Found]:
    """AGIN -> AG -> AGOUT -> compute of the unit."""
    last: dict[tuple[str, tuple[str, str]], int] = {}
    waiting: dict[tuple[str, str], tuple[int, str]] = {}
    for here, node in enumerate(program):
        unit = (node.unit, node.phase)
        if node.kind == "AG":
            if ("AGIN", unit) in last:
                yield last["AGIN", unit], here, "F2"
        elif node.kind == "AGOUT":
            if ("AG", unit) in last:
                yield last["AG", unit], here, "F3" if node.phase == "forward" else "B1"
            waiting[unit] = (here, "F4" if node.phase == "forward" else "B1b")
        elif node.kind in COMPUTE and unit in waiting:
            before, rule = waiting.pop(unit)
            yield before, here, rule
        last[node.kind, unit] = here


def _gather_buffers(program: Sequence[Node], capacity: Capacity) -> Iterator[_Found]:
    """A gather may start once the buffer that it takes has been copied out.

    Forward keeps the last copied-out buffer until the next copy-out, so that a gather waits for the
    one before last; backward waits for the last; a new pass waits for all of the pass before.
    """
    copied: list[int] = []
    pass_start = 0
    phase = ""
    for here, node in enumerate(program):
        if node.kind == "AGIN":
            if node.phase != phase:
                pass_start, phase = len(copied), node.phase
            kept = capacity.forward_gathers if phase == "forward" else capacity.backward_gathers
            in_pass = len(copied) - pass_start
            if in_pass >= kept:
                yield copied[-kept], here, "F6" if phase == "forward" else "B2"
            elif pass_start:
                yield copied[pass_start - 1], here, "F9"
        elif node.kind == "AGOUT":
            copied.append(here)


def _layers(program: Sequence[Node]) -> Iterator[_Found]:
    before: int | None = None
    for here, node in enumerate(program):
        if node.kind not in ("FWD", "BWD"):
            continue
        if before is not None:
            pair = program[before].kind[0] + node.kind[0]
            # The next microbatch's forward reads nothing of this one's backward.
            if pair != "BF":
                yield before, here, pair
        before = here


def _reductions(program: Sequence[Node], capacity: Capacity) -> Iterator[_Found]:
    backward: dict[str, int] = {}
    copied_in: dict[str, int] = {}
    reduced: dict[str, int] = {}
    all_reduced: dict[str, int] = {}
    post: dict[str, int] = {}
    scatters: list[int] = []
    for here, node in enumerate(program):
        unit = node.unit
        if node.kind == "BWD":
            backward[unit] = here
        elif node.kind == "RSIN":
            if unit in backward:
                yield backward[unit], here, "B4"
            if len(scatters) >= capacity.reduce_inputs:
                yield scatters[-capacity.reduce_inputs], here, "B5"
            copied_in[unit] = here
        elif node.kind == "RS":
            if unit in copied_in:
                yield copied_in[unit], here, "B6"
            reduced[unit] = here
            scatters.append(here)
        elif node.kind == "AR":
            if unit in reduced:
                yield reduced[unit], here, "B9r"
            all_reduced[unit] = here
        elif node.kind == "POST":
            if unit in all_reduced and all_reduced[unit] > reduced.get(unit, -1):
                yield all_reduced[unit], here, "B9p"
            elif unit in reduced:
                yield reduced[unit], here, "B9"
            if unit in post:
                yield post[unit], here, "G1"
            post[unit] = here


def _optimizer(program: Sequence[Node]) -> Iterator[_Found]:
    """All reductions end before the optimizer; a norm's all-reduce stands between two parts of it."""
    pending: list[tuple[int, str]] = []
    last_backward: int | None = None
    norm: int | None = None
    optimizer: int | None = None
    for here, node in enumerate(program):
        if node.kind in ("POST", "RS", "AR"):
            pending.append((here, "B11" if node.kind == "POST" else "B12"))
        elif node.kind == "BWD":
            last_backward = here
        elif node.kind == "OPT":
            for before, rule in pending:
                yield before, here, rule
            if pending == [] and last_backward is not None:
                yield last_backward, here, "B11"
            pending, last_backward = [], None
            if norm is not None:
                yield norm, here, "N2"
                norm = None
            optimizer = here
        elif node.kind == "COMM" and node.phase == "optimizer":
            for before, rule in pending:
                yield before, here, rule
            pending = []
            if optimizer is not None:
                yield optimizer, here, "N1"
            norm = here
