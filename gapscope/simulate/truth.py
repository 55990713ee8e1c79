"""What an injection really cost: the step with it, less the same step without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapscope.simulate.draw import draw
from gapscope.simulate.engine import State, Timing, ideal_ends, run_step
from gapscope.simulate.order import MERGED_STREAMS, OWN_STREAMS, Order, Placement, order
from gapscope.simulate.program import Program, build
from gapscope.simulate.spec import Injection, Spec

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Training:
    """A training that was simulated. `window_start` and `window_end` are per step and rank."""

    program: Program
    order: Order
    placement: Placement
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


def simulate(spec: Spec, on_step: Callable[[], None] | None = None) -> Truth:
    """The training, and its twins with the same random numbers."""
    everything = spec.injection
    observed = train(spec, everything, keep=True, on_step=on_step)
    clean = train(spec, (), keep=False, on_step=on_step) if everything else observed
    without = []
    for number in range(len(everything)):
        others = everything[:number] + everything[number + 1 :]
        twin = train(spec, others, keep=False, on_step=on_step) if others else clean
        without.append(_length(twin))
    return Truth(observed, _length(clean), clean.compute, without)


def train(
    spec: Spec,
    injections: tuple[Injection, ...],
    *,
    keep: bool,
    on_step: Callable[[], None] | None = None,
) -> Training:
    """Simulate all steps; `keep` their times, not only their windows."""
    import numpy as np

    placement = _placement(spec, injections)
    program = build(spec)
    ordered = order(program, placement)
    # The shortest step knows neither shared queues nor merged streams nor coarse waits.
    free = order(program, Placement(OWN_STREAMS, "none"), is_exact=True)
    is_compute = np.array([op.work == "compute" for op in program.ops])
    state = State.begin(spec.ranks)
    reached = np.zeros(spec.ranks)
    steps, opened, starts, ends, compute, ideal = [], [], [], [], [], []
    for number in range(spec.steps):
        numbers = draw(spec, program, number, injections)
        opened.append(state.host)
        timing, state = run_step(program, ordered, numbers, state, spec.compute.stretch)
        starts.append(reached)
        reached = np.maximum(reached, timing.end.max(axis=0))
        ends.append(reached)
        compute.append(timing.length[is_compute].sum(axis=0))
        if keep:
            steps.append(timing)
            lone = ideal_ends(program, free, timing.length, numbers.end_early)
            ideal.append(lone.max(axis=0))
        if on_step is not None:
            on_step()
    none = np.zeros((0, spec.ranks))
    return Training(
        *(program, ordered, placement, steps, opened),
        *(np.array(starts), np.array(ends), np.array(compute), np.array(ideal) if keep else none),
    )


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
