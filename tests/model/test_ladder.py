"""What-if: rungs, Shapley values, and changes that change what they say and nothing else."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapscope.model import bound, ladder
from gapscope.model.ladder import (
    MECHANISMS,
    RUNGS,
    Setting,
    interventions,
    scenario,
    shapley,
    slowest_rank,
)
from gapscope.model.load import Batch
from gapscope.model.replay import Queue, segments
from gapscope.model.rules.fsdp2 import edges
from tests.model.synth import AG, S0, Length, Machine, Model, batch_of, run
from tests.model.test_rules_fsdp2 import models

QUEUES = (Queue(frozenset({S0, AG}), "start"),)


def setting(of: Batch, queues: tuple[Queue, ...] = ()) -> Setting:
    return Setting(of, segments(of, 0), edges(of.program), bound.weights(of).duration, queues)


def test_rungs_are_all_subsets() -> None:
    assert RUNGS == ("", "R1", "R2", "R3", "R1+R2", "R1+R3", "R2+R3", "R1+R2+R3")


def test_what_a_rung_removes() -> None:
    as_run = scenario("", QUEUES)
    assert (as_run.late_launch, as_run.stream_order, as_run.skew, as_run.queues) == (
        True,
        True,
        True,
        QUEUES,
    )
    assert not scenario("R1", QUEUES).late_launch
    assert scenario("R2", QUEUES).queues == ()
    assert not scenario("R2", QUEUES).stream_order
    assert not scenario("R3", QUEUES).skew
    assert not scenario("R1+R3", QUEUES).skew
    # Joins are back on at the end: the last rung is the bound.
    last = scenario("R1+R2+R3", QUEUES)
    assert (last.late_launch, last.stream_order, last.skew, last.queues) == (False, False, True, ())


# ------------------------------------------------------------------------------ Shapley


def lengths(value: dict[str, int]) -> dict[str, int]:
    return {rung: value.get(rung, 0) for rung in RUNGS}


def test_independent_mechanisms_are_worth_what_they_cost() -> None:
    cost = {"R1": 7, "R2": 20, "R3": 3}
    steps = {rung: 100 - sum(cost[m] for m in filter(None, rung.split("+"))) for rung in RUNGS}
    assert shapley(steps) == {m: (pytest.approx(ns), ns, ns) for m, ns in cost.items()}


def test_two_that_hide_each_other_share() -> None:
    """Only removing both saves anything: 30 in halves, and each is worth 0 or 30 by its order."""
    steps = {rung: 70 if {"R1", "R2"} <= set(rung.split("+")) else 100 for rung in RUNGS}
    found = shapley(steps)
    assert found["R1"] == (pytest.approx(15), 0, 30)
    assert found["R2"] == (pytest.approx(15), 0, 30)
    assert found["R3"] == (pytest.approx(0), 0, 0)


@given(st.fixed_dictionaries({rung: st.integers(0, 1_000) for rung in RUNGS}))
@settings(max_examples=100, deadline=None)
def test_shapley_is_the_mean_over_all_orders_and_adds_up(steps: dict[str, int]) -> None:
    def rung(removed: set[str]) -> str:
        return "+".join(m for m in MECHANISMS if m in removed)

    found = shapley(steps)
    assert sum(value for value, _, _ in found.values()) == pytest.approx(
        steps[""] - steps["R1+R2+R3"]
    )
    for mechanism in MECHANISMS:
        gains = []
        for order in permutations(MECHANISMS):
            before = set(order[: order.index(mechanism)])
            gains.append(steps[rung(before)] - steps[rung(before | {mechanism})])
        assert found[mechanism] == (pytest.approx(sum(gains) / 6), min(gains), max(gains))


# ------------------------------------------------------------------------------ changes


def longest(of: Setting) -> dict[str, int]:
    made = {name: int(played.step.max()) for name, played in interventions(of).items()}
    return {"": int(of.play(scenario("", of.queues)).step.max()), **made}


def test_reduce_scatters_on_their_own_communicator() -> None:
    """RS as long as the gathers they queue with: apart they overlap."""
    of = setting(
        batch_of(
            [run(Model(blocks=4), length=lambda k, r: {"AG": 90, "RS": 90, "BWD": 30}.get(k, 5))]
        )
    )
    found = longest(of)
    assert found["separate reduce-scatter communicator"] < found[""]


def test_one_more_reduce_scatter_buffer() -> None:
    """A long RS(2) holds RSIN(1), and the compute stream with it (B5)."""
    length = {"AG": 1, "RS": 60, "BWD": 50}
    of = setting(batch_of([run(Model(blocks=4), length=lambda k, r: length.get(k, 5))]))
    found = longest(of)
    assert found["+1 reduce-scatter buffer"] <= found[""]
    short = setting(batch_of([run(Model(blocks=4), length=lambda k, r: {"BWD": 90}.get(k, 5))]))
    assert longest(short)["+1 reduce-scatter buffer"] == longest(short)[""]


def test_no_second_gather_without_reshard() -> None:
    """Gathers of 100 beside blocks of 10: those of backward are exposed, and go."""
    of = setting(batch_of([run(Model(blocks=4), length=lambda k, r: 100 if k == "AG" else 10)]))
    found = longest(of)
    kept = run(Model(blocks=4, reshard=False), length=lambda k, r: 100 if k == "AG" else 10)
    assert found["reshard_after_forward=False"] == max(op.end for op in kept.ops[0])
    assert found["reshard_after_forward=False"] < found[""]
    never = setting(batch_of([run(Model(blocks=4, reshard=False))]))
    assert "reshard_after_forward=False" not in interventions(never)


def test_prefetch_moves_launches_ahead_and_nothing_else() -> None:
    """The host pauses 500 before FWD(1): AG(2) is issued behind the pause, or asked for by unit 1 before it."""

    def pause_before_the_second() -> Length:
        forwards = iter(range(100))
        return lambda kind, rank: 500 if kind == "FWD" and next(forwards) == 1 else 0

    def length(kind: str, rank: int) -> int:
        return {"AG": 90, "FWD": 80}.get(kind, 1)

    found = longest(
        setting(batch_of([run(Model(blocks=5), length=length, pause=pause_before_the_second())]))
    )
    assert found["explicit prefetch depth 1"] < found[""]
    for depth in (1, 2):
        truth = run(Model(blocks=5, prefetch=depth), length=length, pause=pause_before_the_second())
        assert found[f"explicit prefetch depth {depth}"] == max(op.end for op in truth.ops[0])


@given(models, st.integers(1, 2), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_prefetch_is_what_the_hooks_would_do(model: Model, depth: int, seed: int) -> None:
    """The step of the same model with explicit prefetch, on a host that takes its time before forwards only."""
    model = replace(model, prefetch=0, microbatches=1)
    random = Random(seed)
    lasts = {
        kind: random.randint(1, 60)
        for kind in ("AGIN", "AG", "AGOUT", "FWD", "BWD", "RSIN", "RS", "AR", "POST")
    }
    pauses = [random.choice([0, 0, 40, 300]) for _ in range(100)]

    def machine(of: Model) -> Machine:
        before = iter(pauses)
        return run(
            of, length=lambda kind, rank: lasts.get(kind, 5),
            pause=lambda kind, rank: next(before) if kind == "FWD" else 0,
        )  # fmt: skip

    ahead = interventions(setting(batch_of([machine(model)]))).get(
        f"explicit prefetch depth {depth}"
    )
    if ahead is not None:
        assert ahead.step.max() == max(
            op.end for op in machine(replace(model, prefetch=depth)).ops[0]
        )


def test_more_hardware_queues_is_without_the_queues() -> None:
    machine = run(
        Model(blocks=4), queues=tuple(q.streams for q in QUEUES), kernels=lambda k: 4 if k == "FWD" else 1,
        length=lambda k, r: {"AG": 90, "FWD": 25}.get(k, 5),
    )  # fmt: skip
    found = longest(setting(batch_of([machine]), QUEUES))
    assert found["more hardware queues"] < found[""]
    assert "more hardware queues" not in longest(setting(batch_of([machine])))


def test_pauses_are_cut_to_the_usual_time_between_launches() -> None:
    """Two pauses of 5000 among 200 launches of 3: both go, the launches stay."""
    at = {40: 5_000, 120: 5_000}
    calls = iter(range(10_000))
    machine = run(
        Model(blocks=12), kernels=lambda k: {"FWD": 6, "BWD": 8}.get(k, 1),
        pause=lambda kind, rank: at.get(next(calls), 3), length=lambda k, r: 4,
    )  # fmt: skip
    calls = iter(range(10_000))
    steady = run(
        Model(blocks=12), kernels=lambda k: {"FWD": 6, "BWD": 8}.get(k, 1),
        pause=lambda kind, rank: 3, length=lambda k, r: 4,
    )  # fmt: skip
    found = longest(setting(batch_of([machine])))
    assert found[""] > 10_000
    assert found["no pauses between launches"] == pytest.approx(
        max(o.end for o in steady.ops[0]), rel=0.02
    )


def skewed(*late: int, ranks: int = 3) -> Batch:
    """One rank a step sleeps 500 before the first launch."""

    def pause(who: int):
        first: set[int] = set()

        def once(kind: str, rank: int) -> int:
            is_first = rank not in first
            first.add(rank)
            return 500 if is_first and rank == who else 0

        return once

    return batch_of(
        [
            run(Model(blocks=2), ranks=ranks, pause=pause(who), length=lambda k, r: 10)
            for who in late
        ]
    )


def test_the_rank_that_the_others_wait_for() -> None:
    assert slowest_rank(skewed(1, 1, 1)) == 1
    assert slowest_rank(skewed(0, 1, 2)) is None  # rotating
    even = batch_of([run(Model(blocks=2), ranks=2, length=lambda k, r: 10)])
    assert slowest_rank(even) is None


def test_one_sleep_outweighs_being_last_by_a_little_elsewhere() -> None:
    """Rank 1 sleeps once a step; rank 0 is last by 1 at everything else."""
    slept: set[int] = set()

    def pause(kind: str, rank: int) -> int:
        if rank == 1 and 1 not in slept:
            slept.add(1)
            return 500
        return 0

    of = batch_of([
        run(Model(blocks=4), ranks=2, pause=pause, length=lambda k, r: 11 if (k, r) == ("AGOUT", 0) else 10)
    ])  # fmt: skip
    assert slowest_rank(of) == 1


def test_a_slow_rank_made_as_fast_as_the_median() -> None:
    of = setting(skewed(1, 1))
    even = run(Model(blocks=2), ranks=3, length=lambda k, r: 10)
    found = longest(of)
    assert found[""] == 500 + max(op.end for op in even.ops[0])
    assert found["rank 1 as fast as the median"] == max(op.end for op in even.ops[0])


def test_nothing_changes_where_nothing_is_wrong() -> None:
    """All released at once, equal ranks, short transfers: no change makes the step longer."""
    of = setting(
        batch_of(
            [run(Model(blocks=4), ranks=2, length=lambda k, r: {"FWD": 50, "BWD": 90}.get(k, 2))]
        )
    )
    found = longest(of)
    assert all(ns <= found[""] for ns in found.values()), found
    assert ladder.RUNGS[0] == ""
