"""Replay: segments against one op after the other, the machine's own steps, scenarios, queues, joins."""

from __future__ import annotations

from dataclasses import replace as changed
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapscope.model import bound, ladder
from gapscope.model.load import Batch
from gapscope.model.replay import (
    DifferentSegmentsError,
    Queue,
    Scenario,
    alike,
    cut,
    replay,
    segments,
)
from gapscope.model.rules.book import Edge
from gapscope.model.rules.fsdp2 import COLLECTIVES, ENGINE, edges
from tests.model.synth import (
    AG,
    CI,
    RS,
    S0,
    Machine,
    Model,
    Op,
    batch,
    batch_of,
    program,
    random_lengths,
    run,
)
from tests.model.test_rules_fsdp2 import models

ALIASED = (Queue(frozenset({S0, AG}), "start"), Queue(frozenset({CI, RS}), "start"))


def play(of: Batch, scenario: Scenario, floor: int = 0) -> Any:
    return replay(
        of, segments(of, floor), edges(of.program), bound.weights(of).duration, scenario
    ).step


# ------------------------------------------------------------------------------ segments


def test_ops_of_one_node_on_one_stream_are_one_segment() -> None:
    of = program("AGOUT(1) FWD(1) AGIN(2)")
    rows = [
        Op(
            "AGOUT(1)", S0, 0, 1, kind="memcpy"
        ),  # copies pass queues: the kernel behind begins anew
        Op("AGOUT(1)", S0, 1, 2),
        Op("FWD(1)", S0, 2, 3, kind="memset"),
        Op("FWD(1)", S0, 3, 4, kind="memcpy"),
        Op("FWD(1)", S0, 4, 5),
        Op("AGIN(2)", CI, 5, 6),
        Op("FWD(1)", S0, 6, 7),
    ]
    begins, described = cut(batch(of, {(0, 0): rows}).ops[0, 0])
    assert begins.tolist() == [0, 1, 2, 5, 6]
    assert [tuple(one) for one in described.tolist()] == [
        (0, S0, False, False), (0, S0, True, True), (1, S0, True, True), (2, CI, True, True), (1, S0, True, True),
    ]  # fmt: skip


def test_ranks_that_issue_in_different_orders_cannot_be_replayed() -> None:
    of = program("FWD(1) AGIN(2)")
    rows = [Op("FWD(1)", S0, 0, 5), Op("AGIN(2)", CI, 5, 6)]
    both = batch(of, {(0, 0): rows, (0, 1): rows[::-1]})
    with pytest.raises(DifferentSegmentsError):
        segments(both, 0)
    segments(batch(of, {(0, 0): rows, (0, 1): rows}), 0)


def test_steps_that_issue_in_different_orders_are_replayed_apart() -> None:
    """Step 1 puts the gather on the compute stream, step 3 on one rank only: that one has no replay."""
    of = program("AG(1) FWD(1)")

    def rows(step: int, stream: int) -> list[Op]:
        at = 10 * step
        return [Op("AG(1)", stream, at, at + 2, at), Op("FWD(1)", S0, at + 3, at + 5 + step, at)]

    streams = {
        (0, 0): AG,
        (0, 1): AG,
        (1, 0): S0,
        (1, 1): S0,
        (2, 0): AG,
        (2, 1): AG,
        (3, 0): S0,
        (3, 1): AG,
    }
    whole = batch(of, {(s, r): rows(s, stream) for (s, r), stream in streams.items()})
    parts = alike(whole)
    assert [part.steps for part in parts] == [[0, 2], [1], [3]]
    for part in parts:
        for here, step in enumerate(part.steps):
            s = whole.steps.index(step)
            assert part.node_end[:, here].tolist() == whole.node_end[:, s].tolist()
            assert part.window_end[here].tolist() == whole.window_end[s].tolist()
            assert all(part.ops[here, r] is whole.ops[s, r] for r in range(2))
    # One after the other on one stream, a segment each; on two, as well: what differs is the stream.
    assert [len(segments(part, 0).items) for part in parts[:2]] == [2, 2]
    with pytest.raises(DifferentSegmentsError):
        segments(parts[2], 0)
    assert alike(parts[0]) == [parts[0]]


# ------------------------------------------------------------------------------ op by op


def op_by_op(of: Batch, every: list[Edge], floor: int, scenario: Scenario) -> np.ndarray[Any, Any]:
    """The definition, one op after the other and one step at a time: no segments, no max-plus."""
    transfer = bound.weights(of).duration
    steps, ranks = of.observed.shape
    result = np.zeros((steps, ranks), np.int64)
    for s in range(steps):
        count = len(of.ops[s, 0])
        start, end = np.zeros((count, ranks), np.int64), np.zeros((count, ranks), np.int64)
        for i in range(count):
            for r in range(ranks):
                ops = of.ops[s, r]
                node = int(ops.node[i])
                kind = of.program[node].kind
                earlier = range(i)
                mine = [j for j in earlier if ops.node[j] == node]
                after = [end[j, r] for j in mine]
                if not mine:
                    producers = {e.before for e in every if e.after == node}
                    after += [end[j, r] for j in earlier if ops.node[j] in producers]
                if scenario.stream_order:
                    after += [end[j, r] for j in earlier if ops.stream[j] == ops.stream[i]][-1:]
                if kind in ENGINE:
                    after += [end[j, r] for j in earlier if of.program[ops.node[j]].kind in ENGINE][
                        -1:
                    ]
                if kind in COLLECTIVES:
                    link = of.program[node].group
                    after += [
                        end[j, r]
                        for j in earlier
                        if of.program[ops.node[j]].kind in COLLECTIVES
                        and of.program[ops.node[j]].group == link
                    ][-1:]
                for queue in scenario.queues:
                    if int(ops.stream[i]) in queue.streams and not ops.is_copy[i]:
                        head = [
                            j
                            for j in earlier
                            if int(ops.stream[j]) in queue.streams - {int(ops.stream[i])}
                            and not ops.is_copy[j]
                        ][-1:]
                        after += [(start if queue.until == "start" else end)[j, r] for j in head]
                released = ops.issued[i] if scenario.late_launch else of.window_start[s, r]
                start[i, r] = max([int(released), *map(int, after)]) + floor
                length = transfer[node, s, r] if kind in COLLECTIVES else ops.end[i] - ops.start[i]
                end[i, r] = start[i, r] + length
            node = int(of.ops[s, 0].node[i])
            if node in of.joins and scenario.skew:
                for group in of.joins[node]:
                    end[i, group] = start[i, group].max() + transfer[node, s, group]
        result[s] = end.max(axis=0) - of.window_start[s]
    return result


@st.composite
def small_batches(draw: st.DrawFn) -> Batch:
    """Any ops at all, of any streams and times: no machine made them."""
    seed = draw(st.integers(0, 2**32))
    random = Random(seed)
    of = program(
        "AGIN(1) AG(1) AGOUT(1) FWD(1) FWD(R) BWD(R) AGIN'(1) AG'(1) AGOUT'(1) BWD(1) RSIN(1) RS(1) POST(1) OPT(R)"
    )
    ranks = draw(st.integers(1, 3))
    order: list[tuple[str, int, str]] = []
    for n in of:
        name = n.name.replace("(root)", "(R)")
        stream = random.choice([S0, CI, AG, RS])
        count = 1 if n.kind in COLLECTIVES else random.randint(1, 4)
        for _ in range(count):
            kind = (
                "kernel"
                if n.kind in COLLECTIVES
                else random.choice(["kernel", "kernel", "memset", "memcpy"])
            )
            order.append(
                (name, stream if random.random() < 0.8 or n.kind in COLLECTIVES else S0, kind)
            )
    # Nodes interleave where a second thread issues; each node's first op keeps its place.
    if random.random() < 0.5:
        i = random.randrange(len(order) - 1)
        if order[i][0] == order[i - 1][0] and order[i][0] != order[i + 1][0]:
            later = [o for o in order[i + 1 :] if o[0] == order[i + 1][0]]
            order = [*order[:i], *later, order[i], *order[i + 1 + len(later) :]]
    ops = {}
    for s, r in product(range(2), range(ranks)):
        issued, rows = 0, []
        for name, stream, kind in order:
            issued += random.choice([0, 0, 1, random.randint(0, 40)])
            start = issued + random.randint(0, 30)
            rows.append(Op(name, stream, start, start + random.randint(1, 30), issued, kind))
        ops[s, r] = rows
    joins = (
        {"AG(1)": [[0], [1, 2]], "AG'(1)": [[0, 1, 2]], "RS(1)": [[0, 2], [1]]}
        if ranks == 3
        else None
    )
    return batch(of, ops, joins=joins, window=(0, 2000))


scenarios = st.builds(
    Scenario,
    late_launch=st.booleans(),
    stream_order=st.booleans(),
    skew=st.booleans(),
    queues=st.sampled_from([
        (),
        ALIASED,
        (Queue(frozenset({S0, CI, AG, RS}), "start"),),
        (Queue(frozenset({S0, AG}), "end"),),
        (Queue(frozenset({S0, CI, RS}), "end"), Queue(frozenset({S0, AG}), "start")),
    ]),
)  # fmt: skip


@given(small_batches(), scenarios, st.sampled_from([0, 3]))
@settings(max_examples=200, deadline=None)
def test_segments_are_exact(of: Batch, scenario: Scenario, floor: int) -> None:
    every = edges(of.program)
    assert play(of, scenario, floor).tolist() == op_by_op(of, every, floor, scenario).tolist()


# ------------------------------------------------------------------------------ the machine's steps


def machines(
    model: Model, seed: int, queues: tuple[Queue, ...] = (), floor: int = 0
) -> list[Machine]:
    random = Random(seed)
    return [
        run(
            model, ranks=2, length=random_lengths(seed + s), pause=random_lengths(seed + 7 + s, random.choice([0, 5, 60]), 0),
            kernels=lambda kind: {"FWD": 3, "BWD": 4, "AGOUT": 2, "RSIN": 2, "OPT": 2}.get(kind, 1),
            queues=tuple(q.streams for q in queues), floor=floor,
        )
        for s in range(2)
    ]  # fmt: skip


@given(models, st.integers(0, 2**32), st.sampled_from([(), ALIASED]), st.sampled_from([0, 4]))
@settings(max_examples=60, deadline=None)
def test_as_executed_is_what_the_machine_did(
    model: Model, seed: int, queues: tuple[Queue, ...], floor: int
) -> None:
    """Streams and events of the hooks, queues and joins, to the ns: nothing is missing from the replay."""
    of = batch_of(machines(model, seed, queues, floor))
    assert play(of, Scenario(queues=queues), floor).tolist() == of.observed.tolist()


@given(models, st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_removing_a_mechanism(model: Model, seed: int) -> None:
    """R1 and R2 never lengthen a step on any rank; R3 never the longest rank's; all of them end at T_lb."""
    of = batch_of(machines(model, seed, ALIASED))
    steps = {rung: play(of, ladder.scenario(rung, ALIASED)) for rung in ladder.RUNGS}
    for rung, step in steps.items():
        for mechanism in ("R1", "R2"):
            more = "+".join(m for m in ladder.MECHANISMS if m in rung or m == mechanism)
            if more != "R1+R2+R3":
                assert (steps[more] <= step).all(), (rung, more)
        more = "+".join(m for m in ladder.MECHANISMS if m in rung or m == "R3")
        assert (steps[more].max(axis=1) <= step.max(axis=1)).all(), (rung, more)
    # The last rung has the joins again: it is what remains of R1+R2.
    assert (steps["R1+R2+R3"] == steps["R1+R2"]).all()
    every = [*edges(of.program), *bound.resource_edges(of.program)]
    found = bound.schedule(of.program, every, bound.weights(of))
    assert (steps["R1+R2+R3"] == found.t_lb).all()


def test_what_was_issued_ahead_waits_for_the_step_to_begin() -> None:
    """The host ran ahead: the step before ends at 100, and what was issued at 0 starts then."""
    of = batch(
        program("FWD(1) FWD(2)"),
        {(0, 0): [Op("FWD(1)", S0, 100, 130, 0), Op("FWD(2)", S0, 130, 150, 5)]},
        window=(100, 150),
    )
    assert play(of, Scenario()).tolist() == [[50]]


def test_each_mechanism_by_hand() -> None:
    """RS(1) waits for rank 1 (R3), which was told late (R1); on one stream AGIN(2) waits for FWD(1) (R2)."""
    of = program("FWD(1) AGIN(2) AG(2) AGOUT(2) FWD(2)")
    rows = [
        Op("FWD(1)", S0, 0, 50, 0),
        Op("AGIN(2)", S0, 50, 60, 0),
        Op("AG(2)", AG, 60, 90, 0),
        Op("AGOUT(2)", S0, 90, 95, 0),
        Op("FWD(2)", S0, 95, 115, 0),
    ]
    late = [
        rows[0],
        changed(rows[1], start=65, end=75, issued=65),
        changed(rows[2], start=75, end=90, issued=65),
        *rows[3:],
    ]
    rows[2] = changed(rows[2], end=90)
    of_two = batch(of, {(0, 0): rows, (0, 1): late})
    steps = {rung: play(of_two, ladder.scenario(rung, ())).tolist()[0] for rung in ladder.RUNGS}
    assert steps == {
        "": [115, 115],
        "R1": [100, 100],  # AG(2) starts at 60 on both, lasts 15
        "R2": [115, 115],  # rank 1 is late all the same
        "R3": [100, 115],  # rank 0 does not wait for it
        "R1+R2": [75, 75],  # AGIN(2) at 0, AG(2) till 25, behind FWD(1) only
        "R1+R3": [100, 100],
        "R2+R3": [75, 115],
        "R1+R2+R3": [75, 75],
    }


def test_a_queue_frees_at_the_start_or_at_the_end() -> None:
    """AG(2), issued after the kernels of FWD(1), dispatches with the last of them, or behind it."""
    of = program("FWD(1) AG(2) AGOUT(2)")
    rows = [
        Op("FWD(1)", S0, 0, 50, 0),
        Op("FWD(1)", S0, 50, 80, 0),
        Op("AG(2)", AG, 0, 40, 0),
        Op("AGOUT(2)", S0, 80, 85, 0),
    ]
    one = batch(of, {(0, 0): rows})
    assert play(one, Scenario())[0, 0] == 85
    shared = frozenset({S0, AG})
    assert play(one, Scenario(queues=(Queue(shared, "start"),)))[0, 0] == 50 + 40 + 5
    assert play(one, Scenario(queues=(Queue(shared, "end"),)))[0, 0] == 80 + 40 + 5


def test_a_copy_passes_a_queue() -> None:
    of = program("FWD(1) AGIN(2)")
    shared = (Queue(frozenset({S0, CI}), "end"),)
    for kind, last in (("memcpy", 50), ("kernel", 60), ("memset", 60)):
        rows = [Op("FWD(1)", S0, 0, 50, 0), Op("AGIN(2)", CI, 0, 10, 0, kind)]
        assert play(batch(of, {(0, 0): rows}), Scenario(queues=shared))[0, 0] == last


def test_a_queue_waits_for_the_last_kernel_not_for_the_copy_behind_it() -> None:
    of = program("FWD(1) AGIN(2)")
    rows = [
        Op("FWD(1)", S0, 0, 50, 0),
        Op("FWD(1)", S0, 50, 90, 0, "memcpy"),
        Op("AGIN(2)", CI, 50, 70, 0),
    ]
    one = batch(of, {(0, 0): rows})
    assert play(one, Scenario(queues=(Queue(frozenset({S0, CI}), "end"),)))[0, 0] == 90


def test_the_replay_can_miss() -> None:
    """An op's own unexplained lag is not replayed."""
    of = program("FWD(1) FWD(2)")
    rows = [Op("FWD(1)", S0, 0, 50, 0), Op("FWD(2)", S0, 80, 90, 10)]
    assert play(batch(of, {(0, 0): rows}), Scenario())[0, 0] == 60
