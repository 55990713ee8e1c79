"""Configuration of FSDP2: read off the program that ran, compared with what the user declared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gapscope.model.rules.book import Node


@dataclass(frozen=True)
class Configuration:
    """What a program says of the options it ran with; None: it cannot say.

    `resharded` counts units gathered again in backward, `*_prefetch` how many units ahead gathers
    are issued (0 in forward and 1 in backward are FSDP2's defaults).
    """

    units: int
    root_has_parameters: bool
    resharded: int
    microbatches: int
    forward_prefetch: int | None
    backward_prefetch: int | None
    hybrid_shard: bool
    clips_gradients: bool
    # Only a declaration can tell: it leaves no trace but a looser order.
    reduce_inputs: int | None = None

    def words(self) -> str:
        """The configuration in a sentence."""
        said = [
            f"{self.units} units",
            "root with parameters" if self.root_has_parameters else "root without parameters",
            f"{self.resharded} gathered again in backward",
        ]
        if self.microbatches > 1:
            said.append(f"{self.microbatches} microbatches")
        if self.forward_prefetch:
            said.append(f"explicit forward prefetch {self.forward_prefetch}")
        if self.backward_prefetch not in (None, 1):
            said.append(f"backward prefetch {self.backward_prefetch}")
        if self.hybrid_shard:
            said.append("hybrid sharding")
        if self.clips_gradients:
            said.append("gradient norm reduced before the optimizer")
        return ", ".join(said)


def detect(program: Sequence[Node]) -> Configuration:
    """Read the configuration off one step's program."""
    gathered = {n.unit for n in program if n.kind == "AG" and n.phase == "forward"}
    reduced = {n.unit for n in program if n.kind == "RS"}
    again = {n.unit for n in program if n.kind == "AG" and n.phase == "backward"}
    owners = gathered | reduced
    passes = {
        unit: sum(n.kind == "FWD" and n.unit == unit for n in program) for unit in owners - {""}
    }
    return Configuration(
        units=len(owners - {""}),
        root_has_parameters="" in owners,
        resharded=len(again - {""}),
        microbatches=max(1, min(passes.values())) if passes else 1,
        forward_prefetch=_ahead(program, "forward", "FWD"),
        backward_prefetch=_ahead(program, "backward", "BWD"),
        hybrid_shard=any(n.kind == "AR" for n in program),
        clips_gradients=any(n.kind == "COMM" and n.phase == "optimizer" for n in program),
    )


def _ahead(program: Sequence[Node], phase: str, compute: str) -> int | None:
    """How many gathers are issued before the compute of the unit that the first of them serves."""
    waiting: list[str] = []
    most: int | None = None
    for node in program:
        if node.kind == "AG" and node.phase == phase:
            waiting.append(node.unit)
            most = max(most or 0, len(waiting) - 1)
        elif node.kind == compute and node.unit in waiting:
            waiting.remove(node.unit)
    return most


def declared(options: dict[str, str]) -> dict[str, Any]:
    """The `[fsdp2]` table that the ingest was given; empty when none was."""
    text = options.get("fsdp2")
    return json.loads(text) if text else {}


def differences(found: Configuration, said: dict[str, Any]) -> list[str]:
    """Where a declaration disagrees with the program, in words."""
    have = asdict(found)
    return [
        f"{key}: declared {value}, the capture shows {have[key]}"
        for key, value in said.items()
        if key != "reduce_inputs" and have.get(key) != value
    ]
