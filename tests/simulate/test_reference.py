"""The engine against a slow simulator that works off streams one command at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gapscope.simulate.draw import draw
from gapscope.simulate.engine import State, run_step
from gapscope.simulate.order import MERGED_STREAMS, OWN_STREAMS, QUEUES, Placement, order
from gapscope.simulate.program import build
from gapscope.simulate.spec import parse
from tests.simulate import reference

SPEC = """
seed = {seed}
ranks = {ranks}
[model]
blocks = {blocks}
layers_per_block = 1
root_parameters = {root}
reshard_after_forward = {reshard}
micro_batches = {passes}
gradient_sync = "{sync}"
forward_prefetch = {prefetch}
[compute]
forward_ms = {compute}
backward_ms = {compute}
stretch = 1.0
noise = 0.3
[host]
gap_us = {gap}
hook_us = {gap}
"""


@given(
    seed=st.integers(0, 1000),
    ranks=st.integers(1, 3),
    blocks=st.integers(1, 4),
    root=st.booleans(),
    reshard=st.booleans(),
    passes=st.integers(1, 2),
    sync=st.sampled_from(["every", "last"]),
    prefetch=st.integers(0, 2),
    compute=st.sampled_from([0.1, 2.0, 20.0]),
    gap=st.sampled_from([1, 60, 600]),
    queues=st.sampled_from(sorted(QUEUES)),
    streams=st.sampled_from([OWN_STREAMS, MERGED_STREAMS]),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_both_simulators_agree_to_the_nanosecond(queues, streams, root, reshard, **numbers):
    flags = {"root": str(root).lower(), "reshard": str(reshard).lower()}
    asked = parse(SPEC.format(**numbers, **flags))
    program = build(asked)
    drawn = draw(asked, program, 0, ())
    ordered = order(program, Placement(streams, queues))
    timing, _ = run_step(program, ordered, drawn, State.begin(asked.ranks), 1.0)
    start, end = reference.run(program, drawn, asked.ranks, streams, QUEUES[queues])
    assert np.abs(timing.start - np.array(start)).max() == pytest.approx(0, abs=1e-3)
    assert np.abs(timing.end - np.array(end)).max() == pytest.approx(0, abs=1e-3)
