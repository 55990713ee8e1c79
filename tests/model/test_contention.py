"""How much slower compute runs beside communication: recovered where planted, none where not."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from gapscope.model import bound
from gapscope.model.contention import _overlap, stretch, stretched
from gapscope.model.ladder import Setting, scenario
from gapscope.model.load import Batch
from gapscope.model.replay import segments
from gapscope.model.rules.fsdp2 import edges
from tests.model.synth import AG, S0, Op, batch, names, program


def blocks(factor: float, share: list[float], seed: int = 0, noise: float = 0.0) -> Batch:
    """A block a unit, of 6 kernels; a gather runs beside the first `share` of each block's time."""
    of = program(" ".join(f"AG({i}) FWD({i})" for i in range(len(share))))
    random = Random(seed)
    rows, at = [], 0
    for i, covered in enumerate(share):
        alone = [1_000, 3_000, 2_000, 500, 4_000, 1_500]
        started = at
        ops = []
        for k, length in enumerate(alone):
            slow = (
                length
                * (1 + (factor - 1) * (k < covered * len(alone)))
                * (1 + random.uniform(-noise, noise))
            )
            ops.append(Op(f"FWD({i})", S0, at, at + round(slow), 0, name=k))
            at = ops[-1].end
        until = [o.end for k, o in enumerate(ops) if k < covered * len(alone)]
        rows += [Op(f"AG({i})", AG, started, max([started, *until]), 0), *ops]
    return batch(of, {(0, 0): rows})


SHARES = [0, 1, 0.5, 0, 1, 0.5, 0, 1, 0.5, 0]


@pytest.mark.parametrize("factor", [1.1, 1.25, 1.5])
def test_known_stretch_is_recovered(factor: float) -> None:
    assert stretch(blocks(factor, SHARES)) == pytest.approx(factor, abs=0.02)
    assert stretch(blocks(factor, SHARES, noise=0.01)) == pytest.approx(factor, abs=0.03)


def test_no_stretch_without_variation() -> None:
    """Every kernel always runs beside communication, or never: nothing to compare."""
    assert stretch(blocks(1.5, [1] * 10)) is None
    assert stretch(blocks(1.5, [0] * 10)) is None


def test_no_stretch_within_the_noise() -> None:
    assert stretch(blocks(1.0, SHARES, noise=0.05)) is None
    assert stretch(blocks(1.0, SHARES)) is None


def test_too_few_ops_tell_nothing() -> None:
    assert stretch(blocks(1.25, [0, 1])) is None
    assert stretch(blocks(1.25, [0, 1, 0, 1, 0])) == pytest.approx(1.25, abs=0.02)


def test_boundary_steps_tell_nothing() -> None:
    of = blocks(1.25, SHARES)
    assert stretch(replace(of, is_boundary=np.array([True]))) is None


def test_overlap_with_a_union() -> None:
    at = np.array([0, 10, 25, 40])
    end = np.array([10, 20, 35, 60])
    others = (np.array([5, 8, 30, 31]), np.array([12, 9, 32, 33]))  # [5, 12) and [30, 33)
    assert _overlap(at, end, *others).tolist() == [5, 2, 3, 0]
    assert _overlap(at, end, np.array([], np.int64), np.array([], np.int64)).tolist() == [
        0,
        0,
        0,
        0,
    ]


def test_newly_overlapped_compute_is_slowed() -> None:
    """Without R1 AG(2) runs beside FWD(1) for 100: at x1.5 the step gives 50 of it back."""
    of = program("FWD(1) AGIN(2) AG(2) AGOUT(2) FWD(2)")
    rows = [
        Op("FWD(1)", S0, 0, 400, 0), Op("AGIN(2)", 17, 400, 400, 400), Op("AG(2)", AG, 400, 500, 400),
        Op("AGOUT(2)", S0, 500, 500, 0), Op("FWD(2)", S0, 500, 900, 0),
    ]  # fmt: skip
    one = batch(of, {(0, 0): rows})
    setting = Setting(one, segments(one, 0), edges(one.program), bound.weights(one).duration, ())
    assert names(of)[0] == "FWD(1)"
    without = scenario("R1", ())
    plain = setting.play(without)
    assert plain.step[0, 0] == 800
    assert stretched(setting, without, plain, 1.5).step[0, 0] == 850
    assert stretched(setting, without, plain, 1.0).step[0, 0] == 800
    as_run = scenario("", ())
    assert stretched(setting, as_run, setting.play(as_run), 1.5).step[0, 0] == 900
