"""Pieces of a step: one class each, reconciled with the bound, and nothing lost, to the ns."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapscope.model import bound, floors
from gapscope.model.classify import SOFT, classify, gaps, reconcile, structural
from gapscope.model.load import Batch
from gapscope.model.queues import Queue
from gapscope.model.reasons import Producers, Reasons
from gapscope.model.rules.fsdp2 import edges
from gapscope.model.walk import Clock, Piece, Walker
from tests.model.synth import (
    AG,
    CI,
    RS,
    S0,
    Model,
    Op,
    batch,
    batch_of,
    names,
    program,
    random_lengths,
    run,
)
from tests.model.test_rules_fsdp2 import WORKED_EXAMPLE, models

CLASSES = {"R1", "R2", "R3", "H1", "H2", "work", "floor", "unresolved", "carried"}


def pieces_of(of: Batch, r: int, queues: tuple[Queue, ...] = (), s: int = 0) -> list[Piece]:
    every = edges(of.program)
    found = bound.schedule(
        of.program, [*every, *bound.resource_edges(of.program)], bound.weights(of)
    )
    reasons = [
        Reasons(of, Producers(of.program, every), queues, s, rank) for rank in range(len(of.ranks))
    ]
    walker = Walker(of, s, reasons, Clock(floors.start_floors(reasons), 0))
    return classify(of, found, walker, reasons[r], structural(of.program, every), s, r)


def t_lb(of: Batch, r: int, s: int = 0) -> int:
    every = [*edges(of.program), *bound.resource_edges(of.program)]
    return int(bound.schedule(of.program, every, bound.weights(of)).t_lb[s, r])


def total(pieces: list[Piece]) -> Counter[str]:
    found: Counter[str] = Counter()
    for piece in pieces:
        found[piece.gap_class] += piece.length
    return found


# ------------------------------------------------------------------------------ H1 and H2


@pytest.mark.parametrize(
    ("node", "is_structural"),
    [
        ("AG(R)", True),  # the first gather: all compute comes after it
        ("AG(1)", False),  # FWD(R), the embedding, needs nothing of it
        ("AG(2)", False),  # FWD(1)
        ("AG'(2)", False),  # BWD(R), the loss
        ("AG'(1)", False),  # BWD(2)
        ("RS(2)", False),  # BWD(1) does not wait for it, only RSIN(1) does
        ("RS(R)", True),  # the last reduction: all backward before it, the optimizer behind it
    ],
)
def test_structural_is_what_no_compute_could_cover(node: str, is_structural: bool) -> None:
    of = program(WORKED_EXAMPLE)
    assert structural(of, edges(of))[names(of).index(node)] is is_structural


# ------------------------------------------------------------------------------ reconcile


def piece(start: int, length: int, gap_class: str, *, is_hidden: bool = False) -> Piece:
    return Piece(start, start + length, gap_class, is_hidden=is_hidden)


def test_what_was_found_and_persists_stays() -> None:
    found = [piece(0, 30, "R1"), piece(30, 10, "H2"), piece(40, 2, "floor")]
    assert reconcile(found, 32) == found


def test_hidden_lateness_is_cut_first() -> None:
    """40 found, 25 persist: 15 of the 20 hidden are worth nothing."""
    found = [piece(0, 20, "R2"), piece(20, 20, "R1", is_hidden=True)]
    assert total(reconcile(found, 25)) == {"R2": 20, "R1": 5, "H2": 15}


def test_then_the_rest_in_proportion() -> None:
    """60 found, 20 persist: 10 hidden go whole, and 30 of 50 in proportion 30 : 20."""
    found = [piece(0, 30, "R1"), piece(30, 20, "R3"), piece(50, 10, "R2", is_hidden=True)]
    assert total(reconcile(found, 20)) == {"R1": 12, "R3": 8, "H2": 40}


def test_work_and_hard_time_are_not_cut() -> None:
    found = [piece(0, 10, "work"), piece(10, 10, "H1"), piece(20, 10, "R1")]
    assert total(reconcile(found, 0)) == {"work": 10, "H1": 10, "H2": 10}


def test_what_was_missed_is_carried() -> None:
    """10 found, 18 persist: 8 of the hard time can be saved, from what nobody knows."""
    found = [piece(0, 10, "R1"), piece(10, 12, "H1"), piece(22, 4, "H2"), piece(26, 5, "work")]
    assert total(reconcile(found, 18)) == {"R1": 10, "H1": 6, "H2": 2, "carried": 8, "work": 5}


@st.composite
def pieces_in_a_row(draw: st.DrawFn) -> list[Piece]:
    at, made = draw(st.integers(0, 100)), []
    for _ in range(draw(st.integers(1, 12))):
        name = draw(st.sampled_from([*SOFT, "H1", "H2", "work"]))
        length = draw(st.integers(1, 1_000))
        made.append(piece(at, length, name, is_hidden=name in ("R1", "R2") and draw(st.booleans())))
        at += length
    return made


@given(pieces_in_a_row(), st.integers(0, 8_000))
@settings(max_examples=300, deadline=None)
def test_reconciled_pieces_are_a_partition_in_whole_ns(made: list[Piece], recoverable: int) -> None:
    result = reconcile(made, recoverable)
    assert result[0].start == made[0].start
    assert result[-1].end == made[-1].end
    assert all(a.end == b.start for a, b in pairwise(result))
    assert all(p.length > 0 and isinstance(p.length, int) for p in result)
    before, after = total(made), total(result)
    assert after["work"] == before["work"]
    soft = sum(after[name] for name in (*SOFT, "carried"))
    room = sum(before.values()) - before["work"]
    assert soft == min(recoverable, room)
    # Cut or carried, never both; a class of its own only shrinks.
    assert not (after["carried"] and after["H2"] > before["H2"])
    for name in (*SOFT, "H1"):
        assert after[name] <= before[name]
    is_cut = sum(before[name] for name in SOFT) > recoverable
    was_hidden = sum(p.length for p in made if p.is_hidden)
    if is_cut and was_hidden >= sum(before[name] for name in SOFT) - recoverable:
        for p in made:  # hidden lateness alone was enough
            if not p.is_hidden and p.gap_class in SOFT:
                assert p in result


# ------------------------------------------------------------------------------ persistent saving


def test_a_saving_that_later_waiting_eats_is_none() -> None:
    """FWD(2) is 50 late, but FWD(3) waits for a transfer that begins when the step does anyway."""
    of = batch(
        program("AGIN(3) AG(3) FWD(1) FWD(2) AGOUT(3) FWD(3)"),
        {(0, 0): [
            Op("AGIN(3)", CI, 0, 1, 0), Op("AG(3)", AG, 1, 301, 0), Op("FWD(1)", S0, 0, 100, 0),
            Op("FWD(2)", S0, 150, 200, 150), Op("AGOUT(3)", S0, 301, 302, 0), Op("FWD(3)", S0, 302, 400, 0),
        ]},
    )  # fmt: skip
    assert t_lb(of, 0) == 400
    assert total(pieces_of(of, 0)) == {"H2": 50 + 101, "work": 1}
    found = bound.schedule(
        of.program, [*edges(of.program), *bound.resource_edges(of.program)], bound.weights(of)
    )
    assert [(g.start, g.end, g.recoverable_ns) for g in gaps(of, found, 0, 0)] == [
        (100, 150, 0),
        (200, 302, 0),
    ]


def test_the_same_lateness_without_the_transfer_is_worth_its_length() -> None:
    of = batch(
        program("FWD(1) FWD(2) FWD(3)"),
        {
            (0, 0): [
                Op("FWD(1)", S0, 0, 100, 0),
                Op("FWD(2)", S0, 150, 200, 150),
                Op("FWD(3)", S0, 200, 300, 0),
            ]
        },
    )
    assert total(pieces_of(of, 0)) == {"R1": 50}


def test_a_lateness_that_only_partly_persists() -> None:
    """FWD(2) is 50 late; of it 20 remain behind a transfer that ends 30 later than FWD(2) would."""
    of = batch(
        program("AGIN(3) AG(3) FWD(1) FWD(2) AGOUT(3) FWD(3)"),
        {(0, 0): [
            Op("AGIN(3)", CI, 0, 1, 0), Op("AG(3)", AG, 1, 180, 0), Op("FWD(1)", S0, 0, 100, 0),
            Op("FWD(2)", S0, 150, 200, 150), Op("AGOUT(3)", S0, 200, 201, 0), Op("FWD(3)", S0, 201, 300, 0),
        ]},
    )  # fmt: skip
    assert total(pieces_of(of, 0)) == {"R1": 20, "H2": 30, "work": 1}


# ------------------------------------------------------------------------------ identities


def identities(of: Batch, queues: tuple[Queue, ...] = ()) -> None:
    for s in range(len(of.steps)):
        for r in range(len(of.ranks)):
            pieces = pieces_of(of, r, queues, s)
            assert {p.gap_class for p in pieces} <= CLASSES
            assert all(a.end <= b.start for a, b in pairwise(pieces))
            ops = of.ops[s, r]
            begin, end = int(of.window_start[s, r]), int(of.window_end[s, r])
            covered = set()
            for a, b in zip(ops.start[ops.is_compute], ops.end[ops.is_compute], strict=True):
                covered |= set(range(int(a), int(b)))
            absent = set(range(begin, end)) - covered
            inside = [t for p in pieces for t in range(p.start, p.end)]
            assert len(inside) == len(set(inside))
            assert set(inside) == absent
            found = total(pieces)
            soft = sum(found[name] for name in (*SOFT, "carried"))
            assert soft == int(of.observed[s, r]) - t_lb(of, r, s)


@given(models, st.integers(0, 2**32), st.booleans(), st.sampled_from([0, 3]))
@settings(max_examples=60, deadline=None)
def test_every_ns_without_compute_is_in_one_piece(
    model: Model, seed: int, is_aliased: bool, floor: int
) -> None:
    """And compute + work + H + R + floor + unresolved + carried = observed, R to carried = observed - T_lb."""
    random = Random(seed)
    queues = (
        (Queue(frozenset({S0, AG}), "start"), Queue(frozenset({CI, RS}), "start"))
        if is_aliased
        else ()
    )
    machine = run(
        model, ranks=2, length=random_lengths(seed), pause=random_lengths(seed + 7, random.choice([0, 5, 60]), 0),
        kernels=lambda kind: {"FWD": 3, "BWD": 4, "AGOUT": 2, "RSIN": 2, "OPT": 2}.get(kind, 1),
        queues=tuple(q.streams for q in queues), floor=floor,
    )  # fmt: skip
    identities(batch_of([machine]), queues)


def test_mechanisms_of_a_machine_without_any() -> None:
    """No pauses, no queues, equal ranks, no floor: nothing to recover but stream and link order, R2."""
    of = batch_of([run(Model(blocks=3), ranks=2, length=lambda kind, rank: 20)])
    for r in range(2):
        found = total(pieces_of(of, r))
        assert not {"R1", "R3", "floor", "unresolved"} & {name for name, ns in found.items() if ns}


def test_a_rank_that_is_told_late_is_the_other_ranks_skew() -> None:
    """Rank 1 pauses 200 before each of 5 forward launches: R1 there, R3 here, one and the same gap."""
    of = batch_of([
        run(Model(blocks=3), ranks=2, length=lambda kind, rank: 1 if kind == "AGIN" else 20,
            pause=lambda kind, rank: 200 if (kind, rank) == ("FWD", 1) else 0)
    ])  # fmt: skip
    waits, late = pieces_of(of, 0), pieces_of(of, 1)
    assert of.observed[0, 0] == of.observed[0, 1]
    assert total(late)["R1"] > 3 * 150
    assert total(late)["R3"] == 0
    assert total(waits)["R3"] > 3 * 150
    assert {p.culprit for p in waits if p.gap_class == "R3"} == {1}
    assert {p.sub_cause for p in waits if p.gap_class == "R3" and not p.is_hidden} == {"R1"}
    # What rank 0 has of R1 is lateness of rank 1, hidden in transfers.
    assert all(p.is_hidden and p.cause_rank == 1 for p in waits if p.gap_class == "R1")
