"""Random numbers of one step, drawn alike whatever is injected: twins share them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapscope.simulate.program import (
    GAP_HOOK,
    GAP_MODEL,
    GAP_STEP,
    LAUNCH,
    RECORD,
    WAIT,
    Program,
)
from gapscope.simulate.spec import Injection, Spec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

# A range costs this much to open or close, a record or a wait this much to call.
_RANGE_NS, _EVENT_NS = 1_000.0, 2_000.0
_CUT = 2.5


@dataclass(frozen=True)
class Draw:
    """Whole ns as floats; ops or items first, ranks second."""

    gap: Floats
    call: Floats
    length: Floats
    end_early: Floats
    launch_floor: Floats
    stream_floor: Floats
    copy_floor: Floats
    event_floor: Floats
    queue_floor: Floats


def draw(spec: Spec, program: Program, step: int, injections: tuple[Injection, ...]) -> Draw:
    """Lengths and delays of one step on all ranks, injections put in."""
    import numpy as np

    random = np.random.default_rng([spec.seed, step])
    ops, items, ranks = program.ops, program.items, spec.ranks

    def spread(shape: tuple[int, ...], relative: float) -> Floats:
        return 1.0 + relative * np.clip(random.standard_normal(shape), -_CUT, _CUT)

    def between(limits_us: tuple[float, float]) -> Floats:
        low, high = (1_000 * limit for limit in limits_us)
        return np.rint(low + (high - low) * random.random((len(ops), ranks)))

    compute = spread((len(ops), ranks), spec.compute.noise)
    transfer = spread((len(ops), 1), spec.transfer.spread)
    end_early = np.rint(random.random((len(ops), ranks)) * 1_000 * spec.transfer.end_spread_us)
    gap = spread((len(items), ranks), spec.host.spread)
    call = spread((len(items), ranks), spec.host.spread)
    device = spec.device
    floors = [
        between(limits)
        for limits in (
            *(device.launch_floor_us, device.stream_floor_us, device.copy_floor_us),
            *(device.event_floor_us, device.queue_floor_us),
        )
    ]
    base = np.array([op.base_ns for op in ops])[:, None]
    is_collective = np.array([op.collective is not None for op in ops])[:, None]
    # A memset or a copy of a few us varies in its own way, which matters to nobody.
    length = base * np.where(is_collective, transfer, compute)
    gap_us = {
        GAP_MODEL: spec.host.gap_us,
        GAP_HOOK: spec.host.hook_us,
        GAP_STEP: spec.host.step_us,
    }
    mean_gap = np.array([1_000 * gap_us.get(item.gap, 0.0) for item in items])
    mean_call = np.array([_call_ns(item.what, spec) for item in items])
    gap = mean_gap[:, None] * gap
    call = mean_call[:, None] * call
    for one in injections:
        _inject(one, spec, program, step, gap, length)
    return Draw(
        np.rint(gap),
        np.maximum(np.rint(call), 1.0),
        np.maximum(np.rint(length), 500.0),
        end_early,
        *floors,
    )


def _call_ns(what: int, spec: Spec) -> float:
    if what == LAUNCH:
        return 1_000 * spec.host.launch_us
    return _EVENT_NS if what in (RECORD, WAIT) else _RANGE_NS


def _inject(
    one: Injection, spec: Spec, program: Program, step: int, gap: Floats, length: Floats
) -> None:
    if one.steps and step not in one.steps:
        return
    ranks = list(one.ranks) or list(range(spec.ranks))
    if one.gap_class == "R1":
        for item in _paused(one, program):
            gap[item, ranks] += 1e6 * one.amount_ms / one.pieces
    elif one.name == "R3 sleep":
        gap[0, ranks] += 1e6 * one.amount_ms
    elif one.name in ("R3 compute", "H2 compute"):
        chosen = [number for number, op in enumerate(program.ops) if op.work == "compute"]
        for rank in ranks:
            length[chosen, rank] *= one.factor
    elif one.gap_class in ("H1", "H2"):
        for number, op in enumerate(program.ops):
            is_root = op.block is None
            is_meant = is_root == (one.gap_class == "H1")
            if op.collective and is_meant and (not one.blocks or op.block in one.blocks):
                length[number] *= one.factor


def _paused(one: Injection, program: Program) -> list[int]:
    """Items before which the host pauses: launches spread evenly over each pass of a block."""
    phase = "FWD" if one.place == "forward" else "BWD"
    passes: list[list[int]] = []
    node = ""
    for number, item in enumerate(program.items):
        op = program.ops[item.number] if item.what == LAUNCH else None
        if op is None or op.phase != phase or (one.blocks and op.block not in one.blocks):
            # Only another block's launch, or none of this phase, ends a pass.
            node = "" if op is not None else node
            continue
        if op.node != node:
            passes.append([])
            node = op.node
        passes[-1].append(number)
    return [
        launches[piece * len(launches) // one.pieces]
        for launches in passes
        for piece in range(one.pieces)
    ]
