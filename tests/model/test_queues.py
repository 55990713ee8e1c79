"""Rule Q1: aliased streams are found from late starts, and only where the rule fits the run."""

from __future__ import annotations

from random import Random

import pytest

from gapscope.model import bound
from gapscope.model.load import Batch
from gapscope.model.queues import Found, coincidences, detect, merged, previous_kernel
from gapscope.model.replay import Queue, segments
from gapscope.model.rules.fsdp2 import edges
from tests.model.synth import AG, CI, RS, S0, Machine, Model, Op, batch, batch_of, program, run

US = 1_000
KERNELS = {"FWD": 6, "BWD": 8, "AGOUT": 2, "RSIN": 2, "OPT": 3}
LENGTH = {"FWD": 400, "BWD": 600, "AG": 900, "RS": 1_100, "AGIN": 60, "AGOUT": 15, "POST": 40}


def step(queues: tuple[frozenset[int], ...], seed: int, until: str, blocks: int) -> Machine:
    random = Random(seed)
    return run(
        Model(blocks=blocks), ranks=2, queues=queues, until=until, floor=3 * US,
        length=lambda kind, rank: LENGTH.get(kind, 100) * random.randint(950, 1_050),
        pause=lambda kind, rank: random.randint(2, 12) * US,
        kernels=lambda kind: KERNELS.get(kind, 1),
    )  # fmt: skip


def found(of: Batch) -> Found:
    return detect(of, segments(of, 3 * US), edges(of.program), bound.weights(of).duration)


def of_queues(*queues: frozenset[int], until: str = "start", blocks: int = 6) -> Batch:
    return batch_of([step(queues, seed, until, blocks) for seed in range(2)])


def test_planted_queues_are_found() -> None:
    """What the driver does to four streams with two connections."""
    planted = {frozenset({S0, AG}), frozenset({CI, RS})}
    seen = found(of_queues(*planted))
    assert {queue.streams for queue in seen.queues} == planted
    assert {queue.until for queue in seen.queues} == {"start"}
    for evidence in seen.evidence:
        assert evidence.streams in planted
        assert evidence.count >= 4 * 4  # two steps, two ranks
        assert evidence.counter_examples == 0


def test_one_pair_alone_is_found() -> None:
    seen = found(of_queues(frozenset({S0, AG})))
    assert [queue.streams for queue in seen.queues] == [frozenset({S0, AG})]


def test_a_queue_that_waits_for_ends_is_told_apart() -> None:
    """Event timestamps make a queue wait for the end of the op before."""
    seen = found(of_queues(frozenset({S0, RS}), until="end"))
    assert [(queue.streams, queue.until) for queue in seen.queues] == [(frozenset({S0, RS}), "end")]


def test_none_where_none_is_planted() -> None:
    assert found(of_queues()) == Found((), ())


def test_one_queue_for_all_streams() -> None:
    """CUDA_DEVICE_MAX_CONNECTIONS=1."""
    seen = found(of_queues(frozenset({S0, CI, AG, RS})))
    assert [queue.streams for queue in seen.queues] == [frozenset({S0, CI, AG, RS})]


def test_one_queue_for_all_streams_of_a_small_model() -> None:
    """Three blocks: only one pair of streams has four late starts a step, so no three streams have."""
    of = of_queues(frozenset({S0, CI, AG, RS}), blocks=3)
    counted = coincidences(of, edges(of.program))
    late = [sum(n.values()) for pair, n in counted.items() if pair[2] == "start"]
    assert len(late) == 3
    assert sum(n >= 4 * len(of.ops) for n in late) == 1
    assert [queue.streams for queue in found(of).queues] == [frozenset({S0, CI, AG, RS})]
    assert found(of_queues(blocks=3)) == Found((), ())


def chance(*, last_is_held: bool) -> Batch:
    """12 times FWD on S0, each 100 us, and AGIN on CI issued behind it, all at once.

    The first AGINs start just when the FWD before them does, as on one queue. The last one, long,
    starts with its FWD too, or else long before it: then the streams share nothing.
    """
    of = program(" ".join(f"FWD({i}) AGIN({i})" for i in range(12)))
    rows = []
    for i in range(12):
        rows.append(Op(f"FWD({i})", S0, 100 * i * US, 100 * (i + 1) * US, 0))
        start = 100 * i + 2
        if i > 5 and not last_is_held:
            start = 500 + 10 * i
        rows.append(Op(f"AGIN({i})", CI, start * US, (start + (700 if i == 11 else 5)) * US, 0))
    return batch(of, {(0, 0): rows})


@pytest.mark.parametrize("last_is_held", [True, False])
def test_a_pair_is_kept_only_if_its_rule_takes_no_longer_than_the_run(last_is_held: bool) -> None:
    """Coincidences are frequent enough in both; replaying the rule ends late by a third in one."""
    of = chance(last_is_held=last_is_held)
    (counted,) = (
        n for pair, n in coincidences(of, edges(of.program)).items() if pair == (S0, CI, "start")
    )
    assert sum(counted.values()) >= 4
    kept = detect(of, segments(of, 0), edges(of.program), bound.weights(of).duration)
    assert [q.streams for q in kept.queues] == ([frozenset({S0, CI})] if last_is_held else [])
    if last_is_held:
        assert [(e.until, e.count, e.counter_examples) for e in kept.evidence] == [("start", 11, 0)]


def test_pairs_that_share_a_stream_are_one_queue() -> None:
    assert merged([(7, 21, "start"), (17, 25, "start")]) == (
        Queue(frozenset({7, 21}), "start"),
        Queue(frozenset({17, 25}), "start"),
    )
    assert merged([(7, 21, "start"), (17, 25, "start"), (7, 25, "start")]) == (
        Queue(frozenset({7, 17, 21, 25}), "start"),
    )
    assert len(merged([(7, 21, "start"), (7, 25, "end")])) == 2


@pytest.mark.parametrize(("stream", "expected"), [(S0, [-1, 0, 0, 2]), (CI, [-1, -1, -1, -1])])
def test_previous_kernel_ignores_copies(stream: int, expected: list[int]) -> None:
    of = program("FWD(1) AGIN(1)")
    rows = [
        Op("FWD(1)", S0, 0, 1),
        Op("AGIN(1)", CI, 1, 2, kind="memcpy"),
        Op("FWD(1)", S0, 2, 3, kind="memset"),
        Op("FWD(1)", S0, 3, 4),
    ]
    assert previous_kernel(batch(of, {(0, 0): rows}).ops[0, 0], stream).tolist() == expected
