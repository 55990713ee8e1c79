"""What a modelled change means, in a line: the report and `gapscope what-if` say the same."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# What the last rung of the ladder keeps.
LADDER_KEEPS = (
    "Without all three the launch floor and the start of each step's window stay: that rung need "
    "not reach T_lb. Where R3 goes and another mechanism stays, no rank waits for another; in the "
    "last rung they do again, so it may be longer than one above it."
)

# A replay that saves less than this share of the step saves nothing.
NOISE = 0.001

CARRIED = "above T_lb by the bound's schedule, without a late launch, queue or rank found for it"

_MEANINGS = (
    (
        r"no pauses between launches",
        "gaps between launches above their 99th percentile cut to their median",
    ),
    (
        r"rank \d+ as fast as the median",
        "launches and work of that rank as the median of the others",
    ),
    (
        r"all-gather issued at rule-ready time",
        "gathers are launched when the step begins, so each starts once the rules allow it",
    ),
    (
        r"explicit prefetch depth \d+",
        "each forward gather is issued n units ahead (`set_modules_to_forward_prefetch`)",
    ),
    (
        r"\+1 reduce-scatter buffer",
        "backward may run one unit further before it waits for a reduce-scatter",
    ),
    (
        r"separate reduce-scatter communicator",
        "gathers and reduce-scatters no longer queue behind each other",
    ),
    (r"more hardware queues", "no stream shares a hardware queue"),
    (
        r"reshard_after_forward=False",
        "parameters stay gathered: backward gathers nothing, for their memory",
    ),
)


def meanings(changes: Iterable[str]) -> list[str]:
    """`change: what it means`, once for those that differ in a number only."""
    names = list(changes)
    said = []
    for pattern, meaning in _MEANINGS:
        found = next((name for name in names if re.fullmatch(pattern, name)), None)
        if found is not None:
            name = re.sub(r"depth \d+$", "depth n", found)
            said.append(f"{name}: {meaning}.")
    return said
