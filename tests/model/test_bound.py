"""T_lb: closed forms, joins, slack, and that no execution that keeps the rules is shorter."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapscope.model import bound
from gapscope.model.bound import Schedule, Weights
from gapscope.model.rules.book import Edge, Node
from gapscope.model.rules.fsdp2 import COLLECTIVES, Capacity, edges
from tests.model.synth import Model, batch_of, names, program, random_lengths, run
from tests.model.test_rules_fsdp2 import models

STEP = """
    AGIN(R) AG(R) AGOUT(R) FWD(R) AGIN(1) AG(1) AGOUT(1) FWD(1) FWD(R)#2
    BWD(R) BWD(1) RSIN(1) RS(1) POST(1) BWD(R)#2 RSIN(R) RS(R) POST(R) OPT(R)
"""


def weigh(of: tuple[Node, ...], lasts: dict[str, int | list[int]], ranks: int = 1) -> Weights:
    """Nodes last 0 unless stated; by name, or by kind for all of that kind."""
    duration = np.zeros((len(of), 1, ranks), np.int64)
    for i, name in enumerate(names(of)):
        duration[i, 0] = lasts.get(name, lasts.get(of[i].kind, 0))
    everyone = [list(range(ranks))]
    return Weights(duration, {i: everyone for i, n in enumerate(of) if n.kind in COLLECTIVES})


def bounded(
    of: tuple[Node, ...], weights: Weights, **resources: bool
) -> tuple[list[Edge], Schedule]:
    every = [*edges(of), *bound.resource_edges(of, **resources)]
    return every, bound.schedule(of, every, weights)


def t_lb(text: str, lasts: dict[str, int | list[int]], **resources: bool) -> int:
    of = program(text)
    return int(bounded(of, weigh(of, lasts), **resources)[1].t_lb[0, 0])


# ------------------------------------------------------------------------------ closed forms


def test_compute_alone_is_the_sum_of_the_engine() -> None:
    assert t_lb(STEP, {"FWD": 10, "BWD": 20, "OPT": 5, "AGOUT": 1, "RSIN": 2}) == (
        3 * 10 + 3 * 20 + 5 + 2 * 1 + 2 * 2
    )


def test_transfers_alone_are_the_sum_of_the_link() -> None:
    assert t_lb(STEP, {"AG": 7, "RS": 9}) == 2 * 7 + 2 * 9


def test_a_hidden_gather_is_free_an_exposed_one_is_not() -> None:
    """AG(1) runs beside FWD(R), of 50; what it lasts beyond that is exposed."""
    lasts: dict[str, int | list[int]] = {"FWD(R)": 50, "FWD(1)": 10, "AG(R)": 20}
    assert t_lb(STEP, {**lasts, "AG(1)": 40}) == 20 + 50 + 10
    assert t_lb(STEP, {**lasts, "AG(1)": 65}) == 20 + 65 + 10


def test_reductions_hide_behind_backward_but_for_the_last() -> None:
    """RS(1) runs beside BWD(R)#2; RS(R) is all that remains, since only then its gradients exist."""
    lasts: dict[str, int | list[int]] = {"BWD(R)#2": 30, "RS(1)": 25, "RS(R)": 12, "POST": 1}
    assert t_lb(STEP, lasts) == 30 + 12 + 1
    assert t_lb(STEP, {**lasts, "RS(1)": 35}) == 35 + 12 + 1  # B5: its input buffer is the only one


def test_copy_in_and_post_occupy_no_engine() -> None:
    """AGIN(1) runs beside FWD(R), POST(1) beside BWD(R)#2; AGOUT would not."""
    lasts: dict[str, int | list[int]] = {"FWD(R)": 10, "BWD(R)#2": 10}
    assert t_lb(STEP, lasts) == 20
    assert t_lb(STEP, {**lasts, "AGIN(1)": 8, "POST(1)": 8}) == 20
    assert t_lb(STEP, {**lasts, "AGOUT(1)": 8, "RSIN(1)": 8}) == 36


def test_two_communicators_are_two_links() -> None:
    text = "RSIN(2) RS(2) AR(2) POST(2) BWD(1) RSIN(1) RS(1) AR(1) POST(1) OPT(R)"
    shared: dict[str, int | list[int]] = {"RS": 10, "AR": 10}
    assert t_lb(text, shared) == 30  # RS(1) beside AR(2), then AR(1)


def test_free_resources() -> None:
    """Without an order of the link, AG(1) does not queue behind AG(R)."""
    lasts: dict[str, int | list[int]] = {"AG": 10}
    assert t_lb(STEP, lasts) == 20
    assert t_lb(STEP, lasts, link=False) == 10
    beside: dict[str, int | list[int]] = {"AGOUT(1)": 10, "FWD(R)": 10}
    assert t_lb(STEP, beside) == 20
    assert t_lb(STEP, beside, engine=False) == 10


# ------------------------------------------------------------------------------ ranks


def test_a_collective_starts_with_the_last_rank_and_ends_for_all() -> None:
    of = program("BWD(1) RSIN(1) RS(1) POST(1) OPT(R)")
    weights = weigh(of, {"BWD(1)": [10, 30], "RS(1)": 5, "OPT(R)": [1, 2]}, ranks=2)
    _, found = bounded(of, weights)
    rs = names(of).index("RS(1)")
    assert found.start[rs, 0].tolist() == [10, 30]
    assert found.end[rs, 0].tolist() == [35, 35]
    assert found.t_lb[0].tolist() == [36, 37]


def test_sub_groups_join_among_themselves() -> None:
    of = program("BWD(1) RSIN(1) RS(1)")
    weights = weigh(of, {"BWD(1)": [10, 30, 5, 7], "RS(1)": 5}, ranks=4)
    weights.joins[2] = [[0, 1], [2, 3]]
    assert bounded(of, weights)[1].t_lb[0].tolist() == [35, 35, 12, 12]


def test_measured_transfer_is_the_last_end_less_the_last_start() -> None:
    """The rank that came first waited: its own duration is no transfer."""
    machine = run(
        Model(blocks=1), ranks=2, length=lambda kind, rank: 40 if (kind, rank) == ("FWD", 1) else 7
    )
    batch = batch_of([machine])
    weights = bound.weights(batch)
    for i, n in enumerate(batch.program):
        if n.kind in COLLECTIVES:
            assert weights.duration[i, 0].tolist() == [7, 7]
    own = batch.node_end - batch.node_start
    assert own[names(batch.program).index("AG'(1)"), 0, 0] > 7  # it did wait there


def test_a_rule_that_points_backwards_is_an_error() -> None:
    with pytest.raises(ValueError, match="backwards"):
        bound.predecessors(2, [Edge(1, 1, "F2", "a")])


# ------------------------------------------------------------------------------ any execution


def executed(
    of: tuple[Node, ...], every: list[Edge], weights: Weights, random: Random
) -> np.ndarray[Any, Any]:
    """Ends of one execution: every edge kept, each node delayed at will, ranks begin when they like."""
    count, _, ranks = weights.duration.shape
    end = np.zeros((count, ranks), np.int64)
    for i in range(count):
        start = np.array([
            max([end[e.before, r] for e in every if e.after == i], default=0)
            + random.choice([0, 0, random.randint(0, 50)])
            for r in range(ranks)
        ])  # fmt: skip
        if i in weights.joins:
            for group in weights.joins[i]:
                end[i, group] = start[group].max() + weights.duration[i, 0, group]
        else:
            end[i] = start + weights.duration[i, 0]
    return end.max(axis=0)


@given(models, st.integers(0, 2**32), st.integers(1, 3))
@settings(max_examples=80, deadline=None)
def test_no_feasible_execution_beats_the_bound(model: Model, seed: int, ranks: int) -> None:
    of, random = tuple(run(model).nodes), Random(seed)
    weights = weigh(of, {}, ranks)
    weights.duration[:] = np.array(
        [random.randint(0, 60) for _ in range(weights.duration.size)]
    ).reshape(weights.duration.shape)
    for i in weights.joins:
        weights.duration[i] = weights.duration[i, 0, 0]
    every, found = bounded(of, weights)
    for _ in range(3):
        assert (found.t_lb[0] <= executed(of, every, weights, random)).all()
    # and it is reached: without delays the execution is the schedule
    random.choice = lambda of: 0
    assert found.t_lb[0].tolist() == executed(of, every, weights, random).tolist()


@given(models, st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_the_machine_never_beats_the_bound_of_its_own_weights(model: Model, seed: int) -> None:
    """The machine knows streams and events, not rules: compute <= T_lb <= observed on each rank."""
    machine = run(
        model, ranks=2, length=random_lengths(seed), pause=random_lengths(seed + 1, 9, 0), floor=1
    )
    batch = batch_of([machine])
    _, found = bounded(batch.program, bound.weights(batch))
    assert (found.t_lb <= batch.observed).all()
    assert (batch.node_compute.sum(axis=0) <= found.t_lb).all()


@given(models, st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_other_limits(model: Model, seed: int) -> None:
    """A buffer more, a free engine, a free link or lighter work: never longer."""
    of, random = tuple(run(model).nodes), Random(seed)
    weights = weigh(of, {}, 2)
    weights.duration[:] = [[[random.randint(0, 60)] * 2] for _ in of]
    _, found = bounded(of, weights)
    resources = bound.resource_edges(of)
    plus_one = bound.schedule(of, [*edges(of, Capacity().plus_one()), *resources], weights)
    lighter = weigh(of, {}, 2)
    lighter.duration[:] = weights.duration * random.randint(0, 10) // 10
    for other in (
        plus_one,
        bounded(of, weights, engine=False)[1],
        bounded(of, weights, link=False)[1],
        bounded(of, lighter)[1],
    ):
        assert (other.t_lb <= found.t_lb).all()


def test_a_buffer_more_can_be_shorter() -> None:
    """Gathers of 50 beside blocks of 10: with one more buffer AG(3) need not wait for AGOUT(1)."""
    of = tuple(run(Model(blocks=4)).nodes)
    weights = weigh(of, {"AG": 5, "BWD": 10, "RS": 25, "RSIN": 1})
    usual = bounded(of, weights)[1].t_lb[0, 0]
    more = bound.schedule(
        of, [*edges(of, Capacity().plus_one()), *bound.resource_edges(of)], weights
    ).t_lb[0, 0]
    assert more < usual


# ------------------------------------------------------------------------------ chain and slack


def test_chain_of_a_step_by_hand() -> None:
    of = program(STEP)
    weights = weigh(
        of, {"AG(R)": 20, "FWD(R)": 50, "AG(1)": 65, "FWD(1)": 10, "BWD": 5, "RS(R)": 12}
    )
    every, found = bounded(of, weights)
    chain = bound.binding_chain(of, every, weights, found, 0)
    told = [
        (names(of)[link.node], link.rule) for link in chain if weights.duration[link.node, 0, 0]
    ]
    assert told == [
        ("AG(R)", None), ("AG(1)", "link"), ("FWD(1)", "F4"), ("BWD(R)", "FB"), ("BWD(1)", "BB"),
        ("BWD(R)#2", "BB"), ("RS(R)", "B6"),
    ]  # fmt: skip
    slack = bound.slack(of, every, weights, found)
    assert slack[names(of).index("FWD(R)"), 0, 0] == 15
    assert slack[names(of).index("AG(1)"), 0, 0] == 0


def test_chain_crosses_to_the_rank_that_came_last() -> None:
    of = program("BWD(1) RSIN(1) RS(1) POST(1) OPT(R)")
    weights = weigh(of, {"BWD(1)": [10, 30], "RS(1)": 5, "OPT(R)": [9, 2]}, ranks=2)
    every, found = bounded(of, weights)
    chain = bound.binding_chain(of, every, weights, found, 0)
    told = [(names(of)[link.node], link.rank) for link in chain]
    assert told[0] == ("BWD(1)", 1)
    assert told[-1] == ("OPT(R)", 0)
    slack = bound.slack(of, every, weights, found)
    assert slack[0, 0].tolist() == [20, 0]


@given(models, st.integers(0, 2**32), st.integers(1, 2))
@settings(max_examples=60, deadline=None)
def test_slack_and_chain_agree(model: Model, seed: int, ranks: int) -> None:
    """The chain has no slack and tiles the schedule; a node may last longer by its slack, not by more."""
    of, random = tuple(run(model).nodes), Random(seed)
    weights = weigh(of, {}, ranks)
    weights.duration[:] = [[[random.randint(1, 60) for _ in range(ranks)]] for _ in of]
    for i in weights.joins:
        weights.duration[i] = weights.duration[i, 0, 0]
    every, found = bounded(of, weights)
    slack = bound.slack(of, every, weights, found)
    longest = int(found.t_lb.max())
    assert (slack >= 0).all()
    chain = bound.binding_chain(of, every, weights, found, 0)
    assert [int(slack[link.node, 0, link.rank]) for link in chain] == [0] * len(chain)
    assert sum(int(weights.duration[link.node, 0, link.rank]) for link in chain) == longest
    # A node can end later by its slack; one ns more and the step is longer. Participants share theirs.
    i, r = random.randrange(len(of)), random.randrange(ranks)
    for extra, is_longer in ((0, False), (1, True)):
        grown = Weights(weights.duration.copy(), weights.joins)
        grown.duration[i, 0, slice(None) if i in grown.joins else r] += slack[i, 0, r] + extra
        assert (bounded(of, grown)[1].t_lb.max() > longest) == is_longer
