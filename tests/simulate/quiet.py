"""A training without chance and without the cost of starting: its times can be worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from gapscope.simulate import spec as specs
from gapscope.simulate.engine import Timing
from gapscope.simulate.program import Program, build
from gapscope.simulate.truth import Training, Truth, simulate

QUIET: dict[str, dict[str, Any]] = {
    "compute": {"noise": 0, "stretch": 1},
    "transfer": {"spread": 0, "end_spread_us": 0},
    "host": {"spread": 0},
    "device": {
        "launch_floor_us": [0, 0],
        "stream_floor_us": [0, 0],
        "event_floor_us": [0, 0],
        "copy_floor_us": [0, 0],
        "queue_floor_us": [0, 0],
    },
}


def spec(*injections: dict[str, Any], **sections: Any) -> specs.Spec:
    """A quiet SPEC; `sections` are top-level numbers, or dictionaries that add to a section."""
    lines = [f"{key} = {value}" for key, value in sections.items() if not isinstance(value, dict)]
    merged = {name: {**QUIET.get(name, {}), **sections.get(name, {})} for name in specs._SECTIONS}
    for name, values in merged.items():
        lines += [f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]
    for one in injections:
        lines += ["[[injection]]", *(f"{key} = {_toml(value)}" for key, value in one.items())]
    return specs.parse("\n".join(lines))


def train(*injections: dict[str, Any], **sections: Any) -> Truth:
    return simulate(spec(*injections, **sections))


def lengths(training: Training) -> np.ndarray:
    """By step and rank."""
    return training.window_end - training.window_start


def ops(program: Program, node: str) -> list[int]:
    """Numbers of the ops of a node, in order."""
    found = [number for number, op in enumerate(program.ops) if op.node == node]
    assert found, node
    return found


def only(program: Program, node: str) -> int:
    (found,) = ops(program, node)
    return found


def timing(truth: Truth, step: int = 1) -> tuple[Program, Timing]:
    return truth.observed.program, truth.observed.steps[step]


def program(**sections: Any) -> Program:
    return build(spec(**sections))


def _toml(value: Any) -> str:
    return specs._toml(tuple(value) if isinstance(value, list) else value)
