"""Clocks that are wrong in ways that are known: found, and repaired or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from .test_run import rows, write

SMALL = """
ranks = {ranks}
steps = {steps}
[model]
blocks = 2
layers_per_block = 1
[compute]
forward_ms = 2.0
backward_ms = 4.0
[clock]
"""
SLEEP = '\n[[injection]]\nclass = "R3"\nplace = "sleep"\nranks = [1]\namount_ms = 10.0\n'
# Step 4 of these runs is the one at 280 to 330 ms of true time.
JUMP = "jump_rank = 2\njump_at_ms = 300\njump_us = {}\n"
METHODS = "SELECT DISTINCT method FROM rank_clock"
JUMPS = "SELECT rank, jump_ns, jump_steps FROM rank_clock WHERE jump_ns IS NOT NULL"
LAGGARDS = "SELECT laggard_rank, count(*) FROM step_laggard GROUP BY ALL ORDER BY ALL"
GAPS = "SELECT step_id, r3_ns, t_lb_ns FROM step_gap WHERE rank = 0 ORDER BY step_id"

Gaps = dict[int, tuple[int, int]]


def simulated(directory: Path, clock: str, ranks: int = 4, steps: int = 8, more: str = "") -> Path:
    return write(directory, SMALL.format(ranks=ranks, steps=steps) + clock + more)


def gaps(run: Path) -> Gaps:
    """R3 and T_lb of the rank that waits, by step."""
    return {step: (r3, t_lb) for step, r3, t_lb in rows(run, GAPS)}


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Gaps:
    """What clocks that are right give."""
    run = simulated(tmp_path_factory.mktemp("right"), "", more=SLEEP)
    assert rows(run, METHODS) == [("capture clock",)]
    assert rows(run, LAGGARDS) == [(1, 8)]
    return gaps(run)


def check_same(run: Path, right: Gaps, steps: set[int]) -> None:
    """R3 and T_lb of these steps, and no others, are those of clocks that are right."""
    ((residual,),) = rows(run, "SELECT max(residual_ns) FROM rank_clock")
    assert residual < 60_000
    found = gaps(run)
    assert set(found) == steps
    # Each is a sum over collectives, of which each is as good as the residual.
    for step in steps:
        assert found[step] == pytest.approx(right[step], abs=3 * residual, rel=0)


@pytest.mark.parametrize("jump_us", [5_000, 100_000])
def test_a_clock_that_jumps_in_a_step_is_repaired_but_for_that_step(
    tmp_path: Path, right: Gaps, jump_us: int
) -> None:
    run = simulated(tmp_path, JUMP.format(jump_us), more=SLEEP)
    ((rank, jump_ns, steps),) = rows(run, JUMPS)
    assert (rank, steps) == (2, "4")
    assert jump_ns == pytest.approx(jump_us * 1_000, abs=60_000)
    assert rows(run, METHODS) == [("matched ends by step",)]
    check_same(run, right, set(range(8)) - {4})
    # The step itself: refused on every rank, since who came last there is not known.
    assert rows(run, LAGGARDS) == [(1, 7), (None, 1)]
    refused = "SELECT DISTINCT step_id FROM rank_lateness WHERE NOT is_resolved"
    assert rows(run, refused) == [(4,)]
    assert rows(run, "SELECT step_id, detail FROM model_check WHERE check_name = 'program'") == [
        (4, "a clock jumps in this step or beside it: rank 2")
    ]
    forbidden = "SELECT rank, forbids FROM capture_quality WHERE check_name = 'clock_jump'"
    assert rows(run, forbidden) == [
        (2, "how long these steps are on this rank, and any skew (R3) in them")
    ]


def test_a_clock_that_jumps_back_is_found(tmp_path: Path) -> None:
    """The steps beside it overlap it on that rank's clock; the others stay."""
    run = simulated(tmp_path, JUMP.format(-5_000), more=SLEEP)
    ((rank, jump_ns, steps),) = rows(run, JUMPS)
    assert (rank, steps) == (2, "4")
    assert jump_ns == pytest.approx(5_000_000, abs=60_000)
    assert rows(run, LAGGARDS)[0] == (1, 7)


def test_a_jump_between_steps_may_be_in_either(tmp_path: Path) -> None:
    plain = simulated(tmp_path, "")
    ends = "SELECT device_end_ns - 1_000_000_000 FROM step WHERE rank = 2 AND step_id = 3"
    ((end_ns,),) = rows(plain, ends)
    jump = f"jump_rank = 2\njump_at_ms = {end_ns / 1e6 + 0.1}\njump_us = 5_000\n"
    other = tmp_path / "jump"
    other.mkdir()
    run = simulated(other, jump)
    assert rows(run, JUMPS)[0][2] == "3, 4"
    assert rows(run, LAGGARDS) == [(None, 8)]


def test_a_drift_between_hosts_is_followed(tmp_path: Path) -> None:
    """50 ppm are 200 us in this run of 4 s, where ends are some 30 us apart."""
    clock = "ranks_per_host = 1\noffset_us = 100_000.0\ndrift_ppb = 50_000.0\n"
    text = SMALL.format(ranks=4, steps=8).replace("= 2.0", "= 50.0").replace("= 4.0", "= 150.0")
    run = write(tmp_path, text + clock)
    assert rows(run, METHODS) == [("matched ends by step",)]
    assert rows(run, "SELECT max(residual_ns) < 60_000 FROM rank_clock") == [(True,)]
    assert rows(run, LAGGARDS) == [(None, 8)]
    # What is added undoes what the clock does, but for what all ranks have in common.
    apart = """SELECT max(error_ns) - min(error_ns) FROM (
        SELECT c.step_id, c.offset_ns + t.offset_ns + t.drift_ppb / 1e9 * (c.at_ns - 1e9 - t.offset_ns)
            AS error_ns
        FROM step_clock AS c INNER JOIN simulated_clock AS t ON c.rank = t.rank
        WHERE c.step_id IS NOT NULL
    ) GROUP BY step_id"""
    assert max(error for (error,) in rows(run, apart)) < 50_000


def test_a_drift_that_sets_in_is_followed(tmp_path: Path) -> None:
    bend = "ranks_per_host = 1\nbend_ppb = 500_000.0\njump_rank = 2\njump_at_ms = 300\n"
    run = simulated(tmp_path, bend)
    assert rows(run, METHODS) == [("matched ends by step",)]
    assert rows(run, JUMPS) == []
    assert rows(run, "SELECT max(residual_ns) < 60_000 FROM rank_clock") == [(True,)]
    assert rows(run, LAGGARDS) == [(None, 8)]


def test_one_host_is_refined_where_it_cannot_be_right(tmp_path: Path, right: Gaps) -> None:
    """A jump before all collectives but the first is one of the whole capture."""
    clock = "jump_rank = 2\njump_at_ms = 0\njump_us = 100_000\n"
    run = simulated(tmp_path, clock, more=SLEEP)
    assert rows(run, METHODS) == [("matched ends",)]
    assert rows(run, LAGGARDS) == [(1, 8)]
    check_same(run, right, set(range(8)))


def test_a_jump_in_the_only_step_is_refused(tmp_path: Path) -> None:
    run = simulated(tmp_path, "jump_rank = 2\njump_at_ms = 30\njump_us = 20_000\n", steps=1)
    assert rows(run, "SELECT bool_or(laggard_rank IS NOT NULL) FROM step_laggard") != [(True,)]
    withheld = "SELECT count(*) FROM model_check WHERE withholds = 'bound'"
    assert rows(run, withheld) != [(0,)]
    forbidden = "SELECT count(*) FROM capture_quality WHERE check_name LIKE 'clock%' AND forbids LIKE '%R3%'"
    assert rows(run, forbidden) != [(0,)]
