"""Times that can be worked out by hand, on a device where starting costs nothing."""

from __future__ import annotations

import numpy as np
import pytest

from gapscope.simulate import kernels
from gapscope.simulate.contention import Beside
from gapscope.simulate.draw import draw
from gapscope.simulate.engine import ideal_ends
from gapscope.simulate.order import OWN_STREAMS, Placement, order
from gapscope.simulate.program import build
from gapscope.simulate.spec import Injection
from gapscope.simulate.truth import expected_class
from tests.simulate.quiet import lengths, only, ops, program, spec, timing, train

MS = 1_000_000


def memsets(*parts: kernels.Kernels) -> float:
    return kernels.MEMSET_NS * sum(share is None for part in parts for _, share in part)


def test_one_block_alone_takes_what_its_chain_takes():
    """No root group, not resharded: every op but the embedding's backward is on one chain."""
    truth = train(
        model={"blocks": 1, "layers_per_block": 1, "root_parameters": False}
        | {"reshard_after_forward": False},
        host={"gap_us": 1, "hook_us": 1, "step_us": 100},
    )
    program, times = timing(truth)
    issued = times.issued[only(program, "CAST(blocks.0)")] - truth.observed.window_start[1]
    gather = 24_000 + 20_000 + 4.1 * MS + kernels.COPY_NS + 22_000
    compute = (5.0 + 8.2 + 3.8 + 4.8 + 13.0) * MS
    small = memsets(kernels.FORWARD, kernels.HEAD, kernels.HEAD_BACKWARD, kernels.BACKWARD)
    reduce = kernels.COPY_NS + 31_000 + 4.3 * MS + 44_000
    expected = issued + gather + compute + small + reduce + 0.55 * MS
    # Each kernel's share of its segment is rounded to a ns.
    assert np.abs(lengths(truth.observed)[1] - expected).max() < len(program.ops)
    assert (
        times.start[only(program, "AG(blocks.0)")]
        == times.issued[0] * 0 + times.end[only(program, "AGIN(blocks.0)")]
    ).all()


def test_a_step_bound_by_its_link_lasts_as_long_as_all_transfers():
    truth = train(
        compute=dict.fromkeys(
            (
                *("forward_ms", "backward_ms", "embedding_ms", "embedding_backward_ms", "head_ms"),
                *("loss_backward_ms", "head_backward_ms", "optimizer_ms"),
            ),
            0.01,
        ),
        transfer=dict.fromkeys(("block_gather_ms", "block_scatter_ms"), 50.0)
        | dict.fromkeys(("root_gather_ms", "root_scatter_ms"), 70.0),
    )
    program, times = timing(truth)
    collectives = [number for number, op in enumerate(program.ops) if op.collective]
    assert len(collectives) == 20
    # One communicator: each starts when the one before has ended, in the order of the host.
    assert (times.start[collectives[1:]] >= times.end[collectives[:-1]]).all()
    transfers = (18 * 50 + 2 * 70) * MS
    assert (lengths(truth.observed) > transfers).all()
    assert (lengths(truth.observed) < transfers + 4 * MS).all()
    assert (truth.observed.ideal > transfers).all()
    assert (truth.observed.ideal < lengths(truth.observed)).all()


@pytest.mark.parametrize("ranks", [2, 5])
def test_a_sleeping_rank_delays_everyone_by_its_sleep(ranks):
    truth = train({"class": "R3", "place": "sleep", "ranks": [1], "amount_ms": 10.0}, ranks=ranks)
    cost = lengths(truth.observed) - truth.without[0]
    assert (cost == 10 * MS).all()
    program, times = timing(truth)
    first = only(program, "AG(root)")
    waited = times.last_arrival[first] - times.start[first]
    assert waited[1] == 0
    assert (np.delete(waited, 1) == 10 * MS).all()


def test_a_sleep_in_one_step_costs_that_step_alone():
    truth = train(
        {"class": "R3", "place": "sleep", "ranks": [0], "steps": [2], "amount_ms": 3.0}, steps=4
    )
    cost = lengths(truth.observed) - truth.without[0]
    assert cost.tolist() == [[0, 0], [0, 0], [3 * MS, 3 * MS], [0, 0]]


def test_running_ahead_absorbs_a_small_pause_and_no_large_one():
    small = {"class": "R1", "place": "backward", "blocks": [2], "amount_ms": 1.0}
    program, times = timing(train())
    launched = ops(program, "BWD(blocks.2)")[0]
    ahead = (times.start - times.issued)[launched].min()
    assert ahead > MS, "the host is not ahead: the test would show nothing"
    absorbed = train(small)
    assert (lengths(absorbed.observed) == absorbed.without[0]).all()

    large = {**small, "amount_ms": 80.0}
    paused = train(large)
    _, late = timing(paused)
    assert (late.start[launched] == late.issued[launched]).all()
    cost = (lengths(paused.observed) - paused.without[0])[1]
    # What comes behind is late by the same, as long as the device then waits for the host.
    assert np.abs(cost - (80 * MS - ahead)).max() < 2 * MS


def test_a_pause_in_pieces_is_the_same_pause():
    one = {"class": "R1", "place": "forward", "ranks": [1], "amount_ms": 30.0}
    whole, parts = train(one), train({**one, "pieces": 4})
    given = [t.observed.steps[1].issued[-1] - t.observed.opened[1] for t in (whole, parts)]
    assert (given[0] == given[1]).all()
    assert given[0][1] - given[0][0] == 6 * 30 * MS


def test_a_shared_queue_holds_a_gather_until_the_kernel_before_it_started():
    held = train({"class": "R2", "place": "hw_queue"})
    program, times = timing(held)
    _, free = timing(train())
    # With a hook's time between, these were issued long before they may start.
    for block in (2, 3, 4, 5):
        gather = only(program, f"AG(blocks.{block})")
        last = ops(program, f"FWD(blocks.{block - 1})")[-1]
        assert (times.start[gather] == times.start[last]).all()
        assert (free.start[gather] < free.start[last]).all()
    # Copies have a queue of their own: the kernel behind this one waits, the copy does not.
    assert (lengths(held.observed) - held.without[0] > 20 * MS).all()


def test_merged_streams_run_one_after_the_other():
    merged = train({"class": "R2", "place": "stream"})
    program, times = timing(merged)
    gather = only(program, "AG(blocks.3)")
    assert (times.start[gather] >= times.end[ops(program, "FWD(blocks.2)")[-1]]).all()
    on_compute = [n for n, op in enumerate(program.ops) if op.stream != 1]
    ends = times.end[on_compute]
    assert (times.start[on_compute][1:] >= ends[:-1]).all()
    assert (lengths(merged.observed) > merged.without[0]).all()


def test_slow_collectives_of_the_root_are_exposed_in_full():
    truth = train({"class": "H1", "factor": 3.0})
    cost = (lengths(truth.observed) - truth.without[0])[1]
    assert (cost == 2 * (6.0 + 5.9) * MS).all()


def test_slow_collectives_of_blocks_cost_more_than_compute_can_hide():
    truth = train({"class": "H2", "place": "transfer", "factor": 4.0})
    cost = lengths(truth.observed) - truth.without[0]
    assert (cost > 0).all()
    assert (cost < 3 * (12 * 4.1 + 6 * 4.3) * MS).all()


def test_less_compute_is_counted_apart_from_the_step():
    truth = train({"class": "H2", "place": "compute", "factor": 0.25})
    assert (truth.observed.compute < 0.26 * truth.clean_compute).all()
    absent = lengths(truth.observed) - truth.observed.compute
    assert (absent > truth.clean - truth.clean_compute).all()


def test_a_slow_rank_makes_the_others_wait_by_what_it_is_slower():
    truth = train({"class": "R3", "place": "compute", "ranks": [1], "factor": 1.2})
    cost = lengths(truth.observed) - truth.without[0]
    assert (truth.observed.compute[:, 0] == truth.clean_compute[:, 0]).all()
    slower = truth.observed.compute[:, 1] - truth.clean_compute[:, 1]
    assert (np.abs(cost[:, 0] - cost[:, 1]) < 0.01 * slower).all()
    assert (cost[:, 0] > 0.9 * slower).all()


def test_compute_is_stretched_by_just_what_runs_beside_it():
    settings = {"compute": {"noise": 0, "stretch": 1.5}}
    truth = train(**settings)
    asked = spec(**settings)
    program, times = timing(truth)
    alone = draw(asked, program, 1, ()).length
    again = Beside(program, 1.5).stretched(alone, times.start, times.end)
    assert (again == times.length).all()
    grown = times.length - alone
    assert grown.sum() > 5 * MS
    # The loss has no communication beside it.
    assert (grown[ops(program, "LOSS'(root)")] == 0).all()


def test_the_shortest_step_is_below_every_step_and_knows_no_injection_of_launch_or_queue():
    plain = train()
    assert (plain.observed.ideal < lengths(plain.observed)).all()
    for place, more in (("hw_queue", {}), ("stream", {})):
        shown = train({"class": "R2", "place": place, **more})
        assert (shown.observed.ideal == plain.observed.ideal).all()
    late = train({"class": "R1", "place": "forward", "amount_ms": 20.0})
    assert (late.observed.ideal == plain.observed.ideal).all()


def test_without_a_sync_the_host_is_ahead_of_the_step_before():
    truth = train(host={"sync": False}, steps=3)
    program, times = timing(truth, step=2)
    assert (times.issued[0] < truth.observed.window_start[2]).all()
    # The optimizer still stands between two steps on the device.
    assert (times.start[0] >= truth.observed.steps[1].end[ops(program, "OPT(root)")[-1]]).all()


def test_explicit_prefetch_gathers_earlier():
    host_bound = {"host": {"gap_us": 400}}
    program, times = timing(train(**host_bound))
    ahead, early = timing(train(model={"forward_prefetch": 1}, **host_bound))
    for block in (2, 4):
        plain = times.start[only(program, f"AG(blocks.{block})")]
        assert (early.start[only(ahead, f"AG(blocks.{block})")] < plain).all()


def test_not_resharded_blocks_are_not_gathered_again():
    again = program(model={"reshard_after_forward": True})
    once = program(model={"reshard_after_forward": False})
    assert sum(op.collective == "all_gather" for op in again.ops) == 1 + 2 * 6
    assert sum(op.collective == "all_gather" for op in once.ops) == 1 + 6
    assert sum(op.collective == "reduce_scatter" for op in once.ops) == 1 + 6


@pytest.mark.parametrize(("sync", "scatters"), [("every", 3 * 7), ("last", 7)])
def test_gradients_are_reduced_every_time_or_once(sync, scatters):
    made = program(model={"micro_batches": 3, "gradient_sync": sync})
    assert sum(op.collective == "reduce_scatter" for op in made.ops) == scatters
    assert sum(op.collective == "all_gather" for op in made.ops) == 3 * 13
    added = [op for op in made.ops if op.node.startswith("ACC")]
    assert len(added) == 2 * 7
    assert {op.stream for op in added} == ({3} if sync == "every" else {0})


def test_staging_buffers_bound_how_far_gathers_run_ahead():
    """Forward: the copy-in of block 2 waits for the copy-out of block 0 (two buffers)."""
    slow = {"compute": {"forward_ms": 40.0}, "host": {"gap_us": 1, "hook_us": 1}}
    made, times = timing(train(**slow))
    copied = times.end[ops(made, "AGOUT(blocks.0)")[-1]]
    assert (times.start[only(made, "CAST(blocks.2)")] == copied).all()


def test_an_op_stands_only_behind_ops_before_it():
    made = program(model={"micro_batches": 2})
    for queues in ("none", "two", "one"):
        for segment in order(made, Placement(OWN_STREAMS, queues)).segments:
            behind = {segment.before, *segment.events, *segment.queued}
            assert max(behind) < segment.first


def test_the_shortest_step_knows_no_wait_that_is_coarser_than_its_data():
    """A later micro-batch gathers behind the whole backward; nothing that it reads is written there."""
    many = {"blocks": 2, "layers_per_block": 1, "micro_batches": 2, "gradient_sync": "last"}
    program = build(spec(model=many))
    length = np.array([[op.base_ns] for op in program.ops])
    early = np.zeros_like(length)
    own = Placement(OWN_STREAMS, "none")
    ends = [
        ideal_ends(program, order(program, own, is_exact=is_exact), length, early)
        for is_exact in (False, True)
    ]
    gather = [n for n, op in enumerate(program.ops) if op.node == "AG(root)"][1]
    backward = max(n for n, op in enumerate(program.ops[:gather]) if op.node.startswith("BWD"))
    assert ends[0][gather, 0] > ends[0][backward, 0]
    assert ends[1][gather, 0] < ends[1][backward, 0]
    assert ends[1].max() < ends[0].max()


def test_who_waits_for_longer_compute_has_hard_idle():
    """No launch, order or start in time mends that."""
    slow = Injection(gap_class="R3", place="compute", ranks=(1,), factor=1.5)
    assert [expected_class(slow, rank, 0, ranks=2) for rank in range(2)] == ["H2", "compute"]
    late = Injection(gap_class="R3", place="sleep", ranks=(1,), amount_ms=5.0)
    assert [expected_class(late, rank, 0, ranks=2) for rank in range(2)] == ["R3", "R1"]
