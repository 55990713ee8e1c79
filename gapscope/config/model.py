"""`[model]`: the shapes of a transformer, from which the work of a step follows, and the peak."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gapscope.config.keys import COUNT, FLAG, POSITIVE, check_keys, one_of
from gapscope.errors import GapscopeError

# Sizes of one layer where layers are alike. `gated`: the MLP multiplies two projections (SwiGLU).
# `moe_layers`: layers whose MLP is a mixture of experts; all, where it is left out.
# `flops_per_token`: forward and backward of one token, for what these shapes cannot describe.
# `peak_tflops`: dense, of one device, at the precision of [run]; wins over `v1.gpu_peak`.
KEYS = {
    "layers": COUNT,
    "hidden": COUNT,
    "heads": COUNT,
    "kv_heads": COUNT,
    "head_dim": COUNT,
    "ffn_hidden": COUNT,
    "gated": FLAG,
    "vocab": COUNT,
    "experts": COUNT,
    "experts_per_token": COUNT,
    "shared_experts": COUNT,
    "moe_layers": COUNT,
    "expert_ffn_hidden": COUNT,
    "shared_expert_ffn_hidden": COUNT,
    "causal": FLAG,
    "recompute": one_of("none", "selective", "full"),
    "flops_per_token": POSITIVE,
    "peak_tflops": POSITIVE,
}

_BESIDE_FLOPS = {"flops_per_token", "peak_tflops"}
_OF_EXPERTS = (
    "experts_per_token",
    "shared_experts",
    "moe_layers",
    "expert_ffn_hidden",
    "shared_expert_ffn_hidden",
)


def check(table: dict[str, Any], source: str) -> None:
    """Refuse keys and values that mean nothing, and shapes that cannot all be true.

    Raises GapscopeError `bad-config`.
    """
    check_keys("model", KEYS, table, source)
    for said, hint in _contradictions(table):
        raise GapscopeError("bad-config", f"`{source}`: [model] {said}", hint)


def _contradictions(table: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What cannot be true together, each with what would be."""
    shapes = [key for key in table if key not in _BESIDE_FLOPS]
    if "flops_per_token" in table and shapes:
        said = f"flops_per_token and {shapes[0]} both say what a token costs"
        yield said, "leave the shapes out, or flops_per_token"
    heads, hidden = table.get("heads"), table.get("hidden")
    if heads and table.get("kv_heads") and heads % table["kv_heads"]:
        said = f"kv_heads {table['kv_heads']} does not divide heads {heads}"
        yield said, "each key-value head serves as many heads"
    if heads and hidden and hidden % heads and "head_dim" not in table:
        yield f"heads {heads} does not divide hidden {hidden}", "declare head_dim"
    alone = [key for key in _OF_EXPERTS if key in table]
    if "experts" not in table and alone:
        yield f"{alone[0]} needs experts", "declare experts, or leave it out"
    if "experts" in table and table.get("experts_per_token", 1) > table["experts"]:
        said = f"experts_per_token {table['experts_per_token']} of experts {table['experts']}"
        yield said, "a token goes to some of the experts"
    if table.get("moe_layers", 0) > table.get("layers", table.get("moe_layers", 0)):
        said = f"moe_layers {table['moe_layers']} of layers {table['layers']}"
        yield said, "layers counts all of them"
