"""Trainings to simulate, and faults of random size to put into them, all from one seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

Section = dict[str, Any]

# Kernels of one layer's forward and backward, and what the host does around them in hooks.
_LAUNCHES_A_LAYER = 41
_STEPS = 3
FAULTS = (
    *("R1 forward one", "R1 forward all", "R1 backward one", "R1 backward all"),
    *("R2 hw_queue", "R2 stream", "R3 sleep", "R3 compute"),
    *("H1 root", "H2 transfer", "H2 compute"),
)


@dataclass(frozen=True)
class Run:
    """One SPEC. `twin` is the run of the same training and random numbers without the faults."""

    name: str
    twin: str
    faults: tuple[str, ...]
    sections: dict[str, Section]
    injections: tuple[Section, ...] = ()

    def toml(self) -> str:
        """The text of the SPEC file."""
        lines: list[str] = []
        for name, section in self.sections.items():
            lines += [f"[{name}]"] if name else []
            lines += [f"{key} = {_toml(value)}" for key, value in section.items()]
        for one in self.injections:
            lines += ["[[injection]]", *(f"{key} = {_toml(value)}" for key, value in one.items())]
        return "\n".join(lines) + "\n"


def runs(settings: int, singles: int, seed: int) -> list[Run]:
    """Each setting once clean, with `singles` single faults, and every second one with two."""
    found = []
    for number in range(settings):
        rng = random.Random(f"{seed} {number}")  # noqa: S311 -- no secret
        clean = Run(f"{number:03d}", f"{number:03d}", (), _setting(rng, seed * 10_000 + number))
        found.append(clean)
        possible = [fault for fault in FAULTS if _fits(fault, clean.sections)]
        chosen = rng.sample(possible, min(singles, len(possible)))
        found += [_with(clean, (fault,), rng) for fault in chosen]
        if number % 2:
            found.append(_with(clean, _two(possible, rng), rng))
    return found


def _between(rng: random.Random, low: float, high: float) -> float:
    """Evenly on a scale of ratios."""
    return float(f"{low * (high / low) ** rng.random():.4g}")


def _evenly(rng: random.Random, low: float, high: float) -> float:
    return float(f"{rng.uniform(low, high):.4g}")


def _setting(rng: random.Random, seed: int) -> dict[str, Section]:
    layers = rng.choice((1, 1, 2))
    forward = _between(rng, 0.5, 15)
    backward = forward * _evenly(rng, 1.8, 2.8)
    gather = max(0.05, forward * _between(rng, 0.15, 3))
    scatter = gather * _evenly(rng, 0.8, 1.4)
    root = _between(rng, 0.3, 3)
    head = forward * _between(rng, 0.1, 2)
    # From a host that is far ahead to one that is a little too slow.
    launch = (forward + backward) * 1_000 * _between(rng, 0.08, 1.1) / _LAUNCHES_A_LAYER / layers
    one_host = rng.random() < 0.9
    ranks = rng.choices((1, 2, 3, 4, 8, 16), (10, 50, 15, 20, 4, 1))[0]
    return {
        "": {"ranks": ranks, "steps": _STEPS, "seed": seed},
        "model": {
            "blocks": rng.choice((2, 3, 4, 6, 8, 12, 16)),
            "layers_per_block": layers,
            "root_parameters": rng.random() < 0.85,
            "reshard_after_forward": rng.random() < 0.75,
            "micro_batches": rng.choices((1, 2), (4, 1))[0],
            "gradient_sync": rng.choice(("every", "last")),
            "forward_prefetch": rng.choices((0, 1, 2), (8, 1, 1))[0],
        },
        "compute": {
            "forward_ms": forward,
            "backward_ms": backward,
            "embedding_ms": max(0.01, head * 0.01),
            "embedding_backward_ms": max(0.02, head * 0.06),
            "head_ms": head,
            "loss_backward_ms": head * 0.45,
            "head_backward_ms": head * 0.6,
            "optimizer_ms": max(0.05, forward * _between(rng, 0.05, 1)),
            "noise": _evenly(rng, 0, 0.05),
            "stretch": _evenly(rng, 1, 1.25),
        },
        "transfer": {
            "block_gather_ms": gather,
            "block_scatter_ms": scatter,
            "root_gather_ms": gather * root,
            "root_scatter_ms": scatter * root,
            "spread": _evenly(rng, 0, 0.12),
            "end_spread_us": _evenly(rng, 0, 60),
        },
        "host": {
            "launch_us": launch * 0.3,
            "gap_us": launch * 0.7,
            "hook_us": launch * _between(rng, 0.7, 4),
            "step_us": _evenly(rng, 50, 500),
            "spread": _evenly(rng, 0.05, 0.3),
            "sync": rng.random() < 0.9,
        },
        "device": {"queues": rng.choices(("none", "two", "one"), (6, 3, 1))[0]},
        "clock": {
            "offset_us": rng.choice((0.0, 100.0, 1e6)),
            "drift_ppb": rng.choice((0.0, 500.0, 5_000.0)),
            "declared": rng.random() < 0.75,
            "ranks_per_host": 8 if one_host else 1,
        },
    }


def _fits(fault: str, sections: dict[str, Section]) -> bool:
    if "one" in fault or fault.startswith("R3"):
        return bool(sections[""]["ranks"] > 1)
    if fault == "R2 hw_queue":
        return bool(sections["device"]["queues"] == "none")
    return fault != "H1 root" or bool(sections["model"]["root_parameters"])


def _two(possible: list[str], rng: random.Random) -> tuple[str, str]:
    """Two faults of different class, among those that are of one size wanted (R1, R3) and R2."""
    first = rng.choice([fault for fault in possible if fault[0] == "R"])
    others = [fault for fault in possible if fault[:2] != first[:2] and fault[0] == "R"]
    return first, rng.choice(others or [fault for fault in possible if fault[:2] != first[:2]])


def _with(clean: Run, faults: tuple[str, ...], rng: random.Random) -> Run:
    name = "-".join([clean.name, *(fault.replace(" ", "_") for fault in faults)])
    injections = tuple(_injection(fault, clean.sections, rng) for fault in faults)
    return replace(clean, name=name, faults=faults, injections=injections)


def _injection(fault: str, sections: dict[str, Section], rng: random.Random) -> Section:
    """A fault that should cost 1 to 25 % of a step; what it does cost is found by simulating."""
    gap_class, place = fault.split()[:2]
    one: Section = {"class": gap_class, "place": place}
    model, compute, transfer = (sections[name] for name in ("model", "compute", "transfer"))
    turns, blocks, ranks = model["micro_batches"], model["blocks"], sections[""]["ranks"]
    computing = turns * (
        blocks * (compute["forward_ms"] + compute["backward_ms"]) + 2.1 * compute["head_ms"]
    )
    gathers = 2 if model["reshard_after_forward"] else 1
    block_transfers = (
        turns * blocks * (gathers * transfer["block_gather_ms"] + transfer["block_scatter_ms"])
    )
    root_transfers = turns * (transfer["root_gather_ms"] + transfer["root_scatter_ms"])
    wanted = _between(rng, 0.01, 0.25) * max(computing, block_transfers + root_transfers)
    if "one" in fault or gap_class == "R3":
        one["ranks"] = [rng.randrange(ranks)]
    if gap_class == "R1":
        # Backward's host is ahead, so that a pause must be longer to cost anything.
        ahead = 3 if place == "backward" else 1
        one["amount_ms"] = ahead * wanted / (turns * blocks)
        one["pieces"] = rng.choice((1, 2, 4))
    elif place == "sleep":
        one["amount_ms"] = wanted
    elif fault == "R3 compute":
        one["factor"] = 1 + wanted / computing
    elif fault == "H1 root":
        one["factor"] = 1 + wanted / root_transfers
    elif fault == "H2 transfer":
        one["factor"] = 1 + _evenly(rng, 1, 3) * wanted / block_transfers
    elif fault == "H2 compute":
        one["factor"] = _evenly(rng, 0.4, 0.9)
    return one


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    return f"{value:.6g}" if isinstance(value, float) else f"{value}"
