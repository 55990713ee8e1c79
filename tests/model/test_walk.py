"""Gaps made by hand, each with one reason; all floors 5 ns, the clock residual 10 ns."""

from __future__ import annotations

from gapscope.model.load import Batch
from gapscope.model.queues import Queue
from gapscope.model.reasons import FLOOR_KINDS, Producers, Reasons
from gapscope.model.rules.fsdp2 import edges
from gapscope.model.walk import Clock, Piece, Walker
from tests.model.synth import AG, CI, RS, S0, Op, batch, names, program

CLOCK = Clock(dict.fromkeys(FLOOR_KINDS, 5), residual_ns=10)
GATHER = "FWD(1) AGIN(2) AG(2) AGOUT(2) FWD(2)"


def walk(
    of: Batch, start: int, node: str, *, rank: int = 0, queues: tuple[Queue, ...] = ()
) -> list[Piece]:
    """Pieces of the gap from `start` to the first op of `node`."""
    reasons = [
        Reasons(of, Producers(of.program, edges(of.program)), queues, 0, r)
        for r in range(len(of.ranks))
    ]
    op = reasons[rank].first_of_node[names(of.program).index(node)]
    pieces = Walker(of, 0, reasons, CLOCK).gap(rank, op, start, reasons[rank].start[op])
    assert [p.start for p in pieces[1:]] == [p.end for p in pieces[:-1]], "holes"
    assert pieces[0].start == start
    assert pieces[-1].end == reasons[rank].start[op]
    return pieces


def told(pieces: list[Piece]) -> list[tuple[int, str, str]]:
    return [(p.length, p.gap_class, p.sub_cause) for p in pieces]


def one_rank(text: str, *rows: Op, window: tuple[int, int] | None = None) -> Batch:
    return batch(program(text), {(0, 0): list(rows)}, window=window)


# ------------------------------------------------------------------------------ R1


def test_late_launch() -> None:
    """FWD(2) could run from 100 and is issued at 150."""
    of = one_rank("FWD(1) FWD(2)", Op("FWD(1)", S0, 0, 100, 0), Op("FWD(2)", S0, 152, 200, 150))
    pieces = walk(of, 100, "FWD(2)")
    assert told(pieces) == [(50, "R1", ""), (2, "floor", "issue")]
    assert pieces[0].rule == "FF"


def test_a_late_launch_that_run_ahead_absorbs_is_none() -> None:
    """FWD(2) is issued at 90, long after it could have been, but before FWD(1) ends at 100."""
    of = one_rank("FWD(1) FWD(2)", Op("FWD(1)", S0, 0, 100, 0), Op("FWD(2)", S0, 104, 200, 90))
    assert told(walk(of, 100, "FWD(2)")) == [(4, "floor", "same_stream")]


def test_unissued_and_not_ready_belongs_to_the_producer() -> None:
    """FWD(2) is issued at 140, when its parameters are still on the way: hard till 150."""
    of = one_rank(
        GATHER,
        Op("FWD(1)", S0, 0, 100, 0),
        Op("AGIN(2)", CI, 0, 10, 0),
        Op("AG(2)", AG, 10, 150, 0),
        Op("AGOUT(2)", S0, 151, 154, 0, "memcpy"),
        Op("FWD(2)", S0, 158, 200, 140),
    )
    pieces = walk(of, 100, "FWD(2)")
    assert told(pieces) == [
        (50, "hard", ""), (1, "floor", "cross_stream"), (3, "work", ""), (4, "floor", "after_copy"),
    ]  # fmt: skip
    # The copy lasted 3 ns and waited 50 for the gather: 3 are its own.
    assert names(of.program)[pieces[0].awaited] == "AG(2)"


# ------------------------------------------------------------------------------ R2


def test_held_by_its_stream() -> None:
    """A gather that FWD(2) does not need runs before it on the same stream."""
    of = one_rank(
        "FWD(1) AGIN(3) AG(3) FWD(2)",
        Op("FWD(1)", S0, 0, 50, 0),
        Op("AGIN(3)", CI, 0, 10, 0),
        Op("AG(3)", S0, 53, 103, 0),
        Op("FWD(2)", S0, 106, 150, 0),
    )
    pieces = walk(of, 50, "FWD(2)")
    assert told(pieces) == [(53, "R2", "stream"), (3, "floor", "same_stream")]
    assert pieces[0].rule == "stream"


def test_the_first_gather_of_a_later_microbatch_is_held_by_the_compute_stream() -> None:
    """Nothing that FWD(1)#2 needs is written by BWD(1), yet its gather was to wait for that."""
    of = one_rank(
        "AGIN(1) AG(1) AGOUT(1) FWD(1) BWD(1) AGIN(1)#2 AG(1)#2 AGOUT(1)#2 FWD(1)#2",
        Op("AGIN(1)", CI, 0, 10, 0),
        Op("AG(1)", AG, 10, 40, 0),
        Op("AGOUT(1)", S0, 40, 42, 0),
        Op("FWD(1)", S0, 42, 100, 0),
        Op("BWD(1)", S0, 100, 200, 0),
        Op("AGIN(1)#2", CI, 202, 212, 0),
        Op("AG(1)#2", AG, 212, 242, 0),
        Op("AGOUT(1)#2", S0, 242, 244, 0),
        Op("FWD(1)#2", S0, 244, 300, 0),
    )
    pieces = walk(of, 200, "FWD(1)#2")
    # 12 + 30 ns of copying in and gathering lie in the gap; all of it could have been done before.
    assert told([p for p in pieces if p.gap_class == "R2"]) == [(30, "R2", "stream")]
    assert [p.is_hidden for p in pieces if p.gap_class == "R2"] == [True]


def test_held_by_its_hardware_queue() -> None:
    """AG(3), issued before FWD(2) on another stream of the queue, dispatches at 90."""
    of = one_rank(
        "FWD(1) AGIN(3) AG(3) FWD(2)",
        Op("FWD(1)", S0, 0, 50, 0),
        Op("AGIN(3)", CI, 0, 88, 0),
        Op("AG(3)", AG, 90, 200, 0),
        Op("FWD(2)", S0, 92, 150, 0),
    )
    queue = (Queue(frozenset({S0, AG}), "start"),)
    pieces = walk(of, 50, "FWD(2)", queues=queue)
    assert told(pieces) == [(40, "R2", "hw_queue"), (2, "floor", "cross_stream")]
    assert pieces[0].rule == "Q1"
    assert told(walk(of, 50, "FWD(2)")) == [
        (5, "floor", "same_stream"),
        (37, "unresolved", "residency"),
    ]


def test_an_op_that_passed_its_queue_was_not_held() -> None:
    """A counter-example: AG(3) dispatches after FWD(2) ran."""
    of = one_rank(
        "FWD(1) AGIN(3) AG(3) FWD(2)",
        Op("FWD(1)", S0, 0, 50, 0),
        Op("AGIN(3)", CI, 0, 10, 0),
        Op("AG(3)", AG, 9_000, 9_100, 0),
        Op("FWD(2)", S0, 53, 150, 0),
    )
    assert told(walk(of, 50, "FWD(2)", queues=(Queue(frozenset({S0, AG}), "start"),))) == [
        (3, "floor", "same_stream")
    ]


# ------------------------------------------------------------------------------ R3


def waiting(arrives: int, *, issued: int = 0, holder: Op | None = None) -> Batch:
    """Rank 0 is in AG(2) from 60 on; rank 1, all data ready at 60, comes when told; 30 ns of transfer."""

    def rows(start: int, issue: int, extra: list[Op]) -> list[Op]:
        return [
            Op("FWD(1)", S0, 0, 50, 0),
            *extra,
            Op("AGIN(2)", CI, 0, 60, 0),
            Op("AG(2)", AG, start, arrives + 30, issue),
            Op("AGOUT(2)", S0, arrives + 31, arrives + 34, 0, "memcpy"),
            Op("FWD(2)", S0, arrives + 35, arrives + 90, 0),
        ]  # fmt: skip

    text = GATHER if holder is None else GATHER.replace("AGIN(2)", "FWD(9) AGIN(2)", 1)
    quick = [] if holder is None else [Op("FWD(9)", S0, 50, 51, 0)]
    return batch(
        program(text),
        {
            (0, 0): rows(60, 0, quick),
            (0, 1): rows(arrives, issued, [] if holder is None else [holder]),
        },
    )


def test_waiting_for_the_last_rank() -> None:
    """Rank 1 issues its part at 120: rank 0 waits 60 for it, and it is named with its reason."""
    pieces = walk(waiting(120, issued=120), 50, "FWD(2)")
    assert told(pieces) == [
        (10, "hard", ""),  # AGIN(2)
        (60, "R3", "R1"),
        (30, "hard", ""),  # the transfer
        (1, "floor", "cross_stream"), (3, "work", ""), (1, "floor", "after_copy"),
    ]  # fmt: skip
    assert pieces[1].culprit == 1


def test_the_last_rank_itself_was_late() -> None:
    """The same on rank 1: its own launch, R1; the ranks agree on the transfer."""
    of = waiting(120, issued=120)
    pieces = walk(of, 50, "FWD(2)", rank=1)
    assert told(pieces)[1:3] == [(60, "R1", ""), (30, "hard", "")]


def test_a_wait_below_the_clock_residual_is_floor() -> None:
    """10 ns of skew, and clocks known to 10 ns: not resolved."""
    assert told(walk(waiting(70, issued=70), 50, "FWD(2)"))[1] == (10, "floor", "clock residual")
    assert told(walk(waiting(71, issued=71), 50, "FWD(2)"))[1] == (11, "R3", "R1")


def test_the_laggard_was_held_by_its_stream() -> None:
    """AG(2) of rank 1 is issued in time, but on a stream behind another rank's worth of compute."""
    of = waiting(120, holder=Op("FWD(9)", AG, 60, 118, 0))
    pieces = walk(of, 51, "FWD(2)")
    assert (60, "R3", "R2") in told(pieces)


# ------------------------------------------------------------------------------ hidden lateness


def gather(start: int, issued: int, ready: int, lasts: int, window: int = 0) -> Batch:
    """FWD(1) runs until 100; what AG(2) lasts beyond is a gap."""
    end = start + lasts
    return one_rank(
        GATHER,
        Op("FWD(1)", S0, window, 100, window),
        Op("AGIN(2)", CI, window, ready, window),
        Op("AG(2)", AG, start, end, issued),
        Op("AGOUT(2)", S0, end, end + 2, window),
        Op("FWD(2)", S0, end + 2, end + 50, window),
        window=(window, end + 50),
    )


def hidden(pieces: list[Piece]) -> int:
    return sum(p.length for p in pieces if p.is_hidden and p.gap_class == "R1")


def shown(pieces: list[Piece], gap_class: str) -> int:
    return sum(p.length for p in pieces if not p.is_hidden and p.gap_class == gap_class)


def test_lateness_before_the_gap_shows_as_transfer_inside_it() -> None:
    """AG(2) could have begun at 40 and did at 60: 20 of the 40 ns inside the gap are late launch."""
    pieces = walk(gather(60, 60, ready=40, lasts=80), 100, "FWD(2)")
    assert (hidden(pieces), shown(pieces, "hard"), shown(pieces, "R1")) == (20, 20, 0)
    (piece,) = [p for p in pieces if p.is_hidden]
    assert (piece.cause_rank, piece.cause_start, piece.cause_end) == (0, 40, 60)


def test_a_transfer_that_started_as_soon_as_it_could_is_hard() -> None:
    pieces = walk(gather(60, 0, ready=60, lasts=80), 100, "FWD(2)")
    assert (hidden(pieces), shown(pieces, "hard")) == (0, 40)


def test_hidden_lateness_ends_where_the_gap_begins() -> None:
    """AG(2) is 130 late: 30 are seen as R1; of the 80 of its transfer, those before 100 count, from 20 on."""
    pieces = walk(gather(130, 130, ready=10, lasts=80), 100, "FWD(2)")
    assert (shown(pieces, "R1"), hidden(pieces), shown(pieces, "hard")) == (30, 80, 0)
    assert [(p.cause_start, p.cause_end) for p in pieces if p.is_hidden] == [(20, 100)]


def test_hidden_lateness_stops_where_the_step_begins() -> None:
    """The optimizer of the step before ended at 50: no earlier start would have sent anything."""
    pieces = walk(gather(130, 130, ready=50, lasts=80, window=50), 100, "FWD(2)")
    assert (shown(pieces, "R1"), hidden(pieces), shown(pieces, "hard")) == (30, 50, 30)


def test_lateness_of_the_other_rank_is_hidden_too() -> None:
    """Rank 1 comes at 60 instead of 30, in the middle of rank 0's compute: 30 of the gap are its R1."""

    def rows(start: int, issued: int) -> list[Op]:
        return [
            Op("FWD(1)", S0, 0, 100, 0), Op("AGIN(2)", CI, 0, 30, 0), Op("AG(2)", AG, start, 140, issued),
            Op("AGOUT(2)", S0, 140, 142, 0), Op("FWD(2)", S0, 142, 200, 0),
        ]  # fmt: skip

    of = batch(program(GATHER), {(0, 0): rows(30, 0), (0, 1): rows(60, 60)})
    pieces = walk(of, 100, "FWD(2)")
    assert (hidden(pieces), shown(pieces, "hard")) == (30, 10)
    assert {p.culprit for p in pieces if p.is_hidden} == {1}


# ------------------------------------------------------------------------------ floor and rest


def test_beyond_the_floor_nothing_is_known() -> None:
    of = one_rank("FWD(1) FWD(2)", Op("FWD(1)", S0, 0, 100, 0), Op("FWD(2)", S0, 150, 200, 0))
    assert told(walk(of, 100, "FWD(2)")) == [
        (5, "floor", "same_stream"),
        (45, "unresolved", "late start"),
    ]


def test_the_tail_of_a_step_is_what_still_ran() -> None:
    """POST(1) runs on after the last compute: it finishes RS(1)."""
    of = one_rank(
        "BWD(1) RSIN(1) RS(1) POST(1)",
        Op("BWD(1)", S0, 0, 50, 0),
        Op("RSIN(1)", S0, 50, 60, 0),
        Op("RS(1)", AG, 60, 90, 0),
        Op("POST(1)", AG, 92, 99, 0),
    )
    reasons = [Reasons(of, Producers(of.program, edges(of.program)), (), 0, 0)]
    pieces = Walker(of, 0, reasons, CLOCK).gap(0, 3, 50, 99)
    assert told(pieces) == [
        (10, "work", ""), (30, "hard", ""), (2, "floor", "same_stream"), (7, "hard", ""),
    ]  # fmt: skip
    assert {names(of.program)[p.awaited] for p in pieces if p.gap_class == "hard"} == {"RS(1)"}


def test_a_late_rank_that_waited_for_another_is_not_the_culprit() -> None:
    """RS(2) begins late on rank 0, which waited in RS(1) for rank 1: the lateness inside RS(2) is rank 1's."""
    text = "BWD(1) RSIN(1) RS(1) BWD(2) RSIN(2) RS(2) OPT(R)"

    def rows(arrives: int, issued: int) -> list[Op]:
        return [
            Op("BWD(1)", S0, 0, 10, 0), Op("RSIN(1)", S0, 10, 20, 0), Op("RS(1)", RS, arrives, 100, issued),
            Op("BWD(2)", S0, 20, 90, 0), Op("RSIN(2)", S0, 100, 101, 0), Op("RS(2)", RS, 101, 181, 0),
            Op("OPT(R)", S0, 181, 200, 0),
        ]  # fmt: skip

    pieces = walk(batch(program(text), {(0, 0): rows(20, 0), (0, 1): rows(80, 80)}), 90, "OPT(R)")
    skew = [p for p in pieces if p.is_hidden and p.gap_class == "R3"]
    assert sum(p.length for p in skew) == 60
    assert {(p.culprit, p.sub_cause) for p in skew} == {(1, "R1")}
