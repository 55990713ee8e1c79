"""`[run]`: what was run and how it was laid out over ranks; the analysis contract reads it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from gapscope.config.keys import COUNT, FLAG, POSITIVES, SPAN, TEXT, check_keys, one_of
from gapscope.errors import GapscopeError

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4", "mxfp4", "int8")

# Names as Megatron-Core uses them, written out. `step` is a regular expression, like `--steps`;
# `steady_steps` holds step_ids, which count from 0 whatever labels say, the second no longer part;
# `reference_step_ms` are times of steps of the same run that no profiler watched; `rank_order`
# names the parallel dimensions from the one whose ranks are neighbours outwards.
KEYS = {
    "framework": TEXT,
    "framework_revision": TEXT,
    "container": TEXT,
    "source": TEXT,
    "model": TEXT,
    "precision": one_of(*PRECISIONS),
    "sequence_length": COUNT,
    "micro_batch": COUNT,
    "global_batch": COUNT,
    "world_size": COUNT,
    "tensor_parallel": COUNT,
    "pipeline_parallel": COUNT,
    "virtual_pipeline": COUNT,
    "context_parallel": COUNT,
    "expert_parallel": COUNT,
    "expert_tensor_parallel": COUNT,
    "data_parallel": COUNT,
    "rank_order": TEXT,
    "cuda_graphs": FLAG,
    "step": TEXT,
    "steady_steps": SPAN,
    "reference_step_ms": POSITIVES,
}

# Each rank is in one group of each of these; the product of their sizes is the world.
_DENSE = ("tensor_parallel", "context_parallel", "data_parallel", "pipeline_parallel")
_EXPERT = ("expert_tensor_parallel", "expert_parallel", "pipeline_parallel")
_ORDER = frozenset({"tp", "cp", "ep", "dp", "pp"})


def check(table: dict[str, Any], source: str) -> None:
    """Refuse keys and values that mean nothing, and sizes that cannot all be true.

    Raises GapscopeError `bad-config`.
    """
    check_keys("run", KEYS, table, source)
    for said, hint in _contradictions(table):
        raise GapscopeError("bad-config", f"`{source}`: [run] {said}", hint)


def _contradictions(table: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What cannot be true together, each with what would be."""
    world = table.get("world_size")
    if world is not None:
        dense = _product(table, _DENSE)
        if all(key in table for key in _DENSE) and dense != world:
            said = f"{_factors(table, _DENSE)} = {dense}, world_size is {world}"
            yield said, "the product must be the world size"
        for keys in (_DENSE, _EXPERT):
            if world % _product(table, keys):
                factors = f"{_factors(table, keys)} = {_product(table, keys)}"
                yield f"{factors} does not divide world_size {world}", "each rank is in one of each"
    batch = ("micro_batch", "data_parallel")
    if table.get("global_batch", 0) % _product(table, batch):
        said = f"global_batch {table['global_batch']} is no multiple of {_factors(table, batch)}"
        yield said, "a step runs whole micro-batches on each data-parallel rank"
    if table.get("virtual_pipeline", 1) > 1 and table.get("pipeline_parallel", 2) == 1:
        yield "virtual_pipeline needs pipeline_parallel above 1", "leave one out"
    order = table.get("rank_order")
    if order is not None:
        dimensions = order.split("-")
        if not set(dimensions) <= _ORDER or len(set(dimensions)) < len(dimensions):
            said = f"rank_order is {order!r}"
            yield said, 'it must name dimensions once, like "tp-cp-ep-dp-pp"'


def _product(table: dict[str, Any], keys: tuple[str, ...]) -> int:
    return math.prod(table.get(key, 1) for key in keys)


def _factors(table: dict[str, Any], keys: tuple[str, ...]) -> str:
    return " x ".join(f"{key} {table[key]}" for key in keys if key in table)
