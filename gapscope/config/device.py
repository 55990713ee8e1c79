"""`[device]`: what links and memory can do, where the table of models is wrong or silent."""

from __future__ import annotations

from typing import Any

from gapscope.config.keys import POSITIVE, check_keys

# GB/s: each way between host and device, each way to all peers together, and of the memory.
KEYS = {"host_link_gb_s": POSITIVE, "peer_link_gb_s": POSITIVE, "memory_gb_s": POSITIVE}


def check(table: dict[str, Any], source: str) -> None:
    """Refuse other keys, and rates that are none.

    Raises GapscopeError `bad-config`.
    """
    check_keys("device", KEYS, table, source)
