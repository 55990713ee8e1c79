"""What an injection really cost: the step with it, less the same step without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gapscope.simulate.draw import draw
from gapscope.simulate.engine import State, Timing, ideal_ends, run_step
from gapscope.simulate.order import MERGED_STREAMS, OWN_STREAMS, Order, Placement, order
from gapscope.simulate.program import Program, build
from gapscope.simulate.spec import Injection, Spec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """What every step of a training has in common."""

    program: Program
    order: Order
    placement: Placement


@dataclass(frozen=True)
class Step:
    """Times of one step in true ns; `opened` and `window_start` are per rank."""

    number: int
    timing: Timing
    opened: Floats
    window_start: Floats


Take = Callable[[Step], None]


@dataclass(frozen=True)
class Training:
    """A training that was simulated. `window_start` and `window_end` are per step and rank."""

    program: Program
    order: Order
    placement: Placement
    # Empty where somebody took them.
    steps: list[Timing]
    # Host time at which each step's range opens.
    opened: list[Floats]
    window_start: Floats
    window_end: Floats
    compute: Floats
    ideal: Floats


@dataclass(frozen=True)
class Truth:
    """Lengths per step and rank; `without[i]` is the training that lacks injection `i` alone."""

    observed: Training
    clean: Floats
    clean_compute: Floats
    without: list[Floats]


def simulate(
    spec: Spec, on_step: Callable[[], None] | None = None, take: Take | None = None
) -> Truth:
    """The training, and its twins with the same random numbers.

    `take` is given each step as soon as it is simulated, which the training then does not keep.
    """
    everything = spec.injection
    kept: list[Timing] = []
    observed = train(
        spec, everything, take=take or (lambda step: kept.append(step.timing)), on_step=on_step
    )
    observed = replace(observed, steps=kept)
    clean = train(spec, (), on_step=on_step) if everything else observed
    without = []
    for number in range(len(everything)):
        others = everything[:number] + everything[number + 1 :]
        twin = train(spec, others, on_step=on_step) if others else clean
        without.append(_length(twin))
    return Truth(observed, _length(clean), clean.compute, without)


def train(
    spec: Spec,
    injections: tuple[Injection, ...],
    *,
    take: Take | None = None,
    on_step: Callable[[], None] | None = None,
) -> Training:
    """Simulate all steps; without `take` only their windows are of interest."""
    import numpy as np

    common = setting(spec, injections)
    program, ordered = common.program, common.order
    # The shortest step knows neither shared queues nor merged streams nor coarse waits.
    free = order(program, Placement(OWN_STREAMS, "none"), is_exact=True)
    is_compute = np.array([op.work == "compute" for op in program.ops])
    state = State.begin(spec.ranks)
    reached = np.zeros(spec.ranks)
    opened, starts, ends, compute, ideal = [], [], [], [], []
    for number in range(spec.steps):
        numbers = draw(spec, program, number, injections)
        opened.append(state.host)
        starts.append(reached)
        timing, state = run_step(program, ordered, numbers, state, spec.compute.stretch)
        reached = np.maximum(reached, timing.end.max(axis=0))
        ends.append(reached)
        compute.append(timing.length[is_compute].sum(axis=0))
        if take is not None:
            take(Step(number, timing, opened[-1], starts[-1]))
            lone = ideal_ends(program, free, timing.length, numbers.end_early)
            ideal.append(lone.max(axis=0))
        if on_step is not None:
            on_step()
    none = np.zeros((0, spec.ranks))
    return Training(
        *(program, ordered, common.placement, [], opened),
        *(np.array(starts), np.array(ends), np.array(compute), np.array(ideal) if take else none),
    )


def setting(spec: Spec, injections: tuple[Injection, ...]) -> Setting:
    """The program, and what its ops stand behind under these injections."""
    placement = _placement(spec, injections)
    program = build(spec)
    return Setting(program, order(program, placement), placement)


def expected_class(one: Injection, rank: int, step: int, ranks: int) -> str | None:
    """The class that an injection shows as on a rank: whoever waits for a late one has R3.

    Who waits for one that computes longer has H2: no launch, order or start in time mends that.
    """
    if one.steps and step not in one.steps:
        return None
    if one.gap_class not in ("R1", "R3"):
        return one.gap_class
    if not one.happens(rank, step) and ranks > 1:
        return "H2" if one.place == "compute" else "R3"
    return "compute" if one.place == "compute" else "R1"


def _length(training: Training) -> Floats:
    return training.window_end - training.window_start


def _placement(spec: Spec, injections: tuple[Injection, ...]) -> Placement:
    names = {one.name for one in injections}
    return Placement(
        MERGED_STREAMS if "R2 stream" in names else OWN_STREAMS,
        "two" if "R2 hw_queue" in names else spec.device.queues,
    )
