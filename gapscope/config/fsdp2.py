"""`[fsdp2]`: what the program was meant to be; `model.configuration` compares it with what ran."""

from __future__ import annotations

from typing import Any

from gapscope.config.keys import FLAG, WHOLE, check_keys

KEYS = {
    "units": WHOLE,
    "root_has_parameters": FLAG,
    "resharded": WHOLE,
    "microbatches": WHOLE,
    "forward_prefetch": WHOLE,
    "backward_prefetch": WHOLE,
    "hybrid_shard": FLAG,
    "clips_gradients": FLAG,
    "reduce_inputs": WHOLE,
}


def check(table: dict[str, Any], source: str) -> None:
    """Refuse keys and types that mean nothing. Raises GapscopeError `bad-config`."""
    check_keys("fsdp2", KEYS, table, source)
