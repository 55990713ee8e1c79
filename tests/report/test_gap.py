"""The report of a run with a bound: what it says, and what it says where something is withheld."""

from __future__ import annotations

import pytest

from gapscope.errors import GapscopeError
from gapscope.render import html, markdown, text
from gapscope.report.build import build
from gapscope.report.document import Document, Gantt, Quantity, Waterfall

from .tiny import STEP, US, Maker, modelled, two_ranks


@pytest.fixture(scope="module")
def document() -> Document:
    return build(modelled().run())


def _said(document: Document, section: str = "verdict") -> str:
    return " ".join(statement.text for statement in document.section(section).statements)


def _table(document: Document, name: str) -> list[dict[str, object]]:
    table = next(t for s in document.sections for t in s.tables if t.id == name)
    return [{c.key: cell for c, cell in zip(table.columns, row, strict=True)} for row in table.rows]


def test_headline_says_the_step_the_bound_and_what_dominates(document: Document) -> None:
    verdict = document.verdict
    assert (verdict.rank, verdict.step_id) == (0, 1)
    assert verdict.t_lb == Quantity(76 * US, "ns", 3, 76 * US, 76 * US)
    assert verdict.gap == Quantity(24 * US, "ns", 3, 22 * US, 24 * US)
    assert verdict.headline.text == (
        "A step takes 100.0 us (n=3, 98.00–100.0) on rank 0; the rules allow 76.00 us for "  # noqa: RUF001 -- a range
        "the same work (T_lb, a program-order bound): at most 24.00 us (24.0 %) could be got back "
        "with the order of launches unchanged, 10.00 us of it "
        "R3 cross-rank skew behind rank 1 (R1 late launch there)."
    )


def test_verdict_names_the_classes_and_what_is_hard(document: Document) -> None:
    said = _said(document)
    assert (
        "R3 cross-rank skew 10.00 us, R1 late launch 6.00 us, R2 queue serialization 6.00" in said
    )
    assert "rank 0 waits 10.00 us for rank 1, whose own reason is R1 late launch" in said
    assert "H1 structural idle 10.00 us waiting for AG(root)" in said
    # Waiting is over when the rank that comes last is on time: without R1, not without R3.
    assert "without R1 the step takes 96.00 us, without R1, R2 and R3 78.00 to 80.00 us" in said
    assert document.section("verdict").missing == ()


def test_waterfall_closes_over_the_bound(document: Document) -> None:
    (figure,) = document.section("verdict").figures
    assert isinstance(figure, Waterfall)
    assert [bar.time_class for bar in figure.bars] == [
        *("observed", "R3", "R1", "R2", "floor", "unresolved", "carried"),
        *("t_lb", "H2", "H1", "work", "compute"),
    ]
    top = figure.bars[0].value_ns
    for bar in figure.bars[1:]:
        assert bar.base_ns + bar.value_ns == top
        top = top if bar.time_class == "t_lb" else bar.base_ns
    assert top == 0


def test_a_gap_that_does_not_close_is_a_bug() -> None:
    made = modelled()
    made.con.execute("UPDATE v1.step_gap SET r2_ns = r2_ns + 1")
    with pytest.raises(GapscopeError, match="misses T_lb by -1 ns") as caught:
        build(made.run())
    assert caught.value.slug == "gap-does-not-close"


def test_cards_are_mechanisms_recoverable_first(document: Document) -> None:
    cards = {card.id: card for card in document.opportunities}
    assert list(cards) == ["finding-r3", "finding-r1", "finding-r2-hw-queue", "finding-h1"]
    queue = cards["finding-r2-hw-queue"]
    assert queue.ceiling is not None
    assert queue.ceiling.value == pytest.approx(100 / 94 - 1)
    assert queue.modelled == Quantity(95 * US, "ns", 3, 95 * US, 95 * US)
    assert any("CUDA_DEVICE_MAX_CONNECTIONS=8" in tip for tip in queue.what_to_try)
    assert any("inferred: 9 of 10 late or early starts fit" in item.text for item in queue.evidence)
    assert any("`more hardware queues` 95.00 us" in item.text for item in queue.evidence)
    assert "no CUDA call" in cards["finding-r1"].evidence[0].text
    assert cards["finding-r3"].what_to_try[0].startswith("On rank 1: the thread was in no CUDA")
    assert cards["finding-h1"].title.endswith("(hard)")
    assert cards["finding-h1"].modelled is None


def test_ladder_has_every_rung_and_shares_that_sum_to_it(document: Document) -> None:
    rows = _table(document, "ladder")
    assert [row["removed"] for row in rows] == [
        "nothing: replay as executed",
        "R1: late launches",
        "R2: queue serialization",
        "R3: waiting for other ranks",
        "R1 and R2",
        "R1 and R3",
        "R2 and R3",
        "all three",
    ]
    shares = [row["shapley_ns"] for row in rows if row["shapley_ns"] is not None]
    assert sum(shares) == pytest.approx(23 * US, abs=2)
    assert rows[-1]["saved_ns"] == 23 * US
    for row in rows[1:4]:
        assert row["least_ns"] <= row["shapley_ns"] <= row["most_ns"]


def test_timeline_has_classes_nodes_and_the_bound(document: Document) -> None:
    first, chain = (f for f in document.section("budget").figures[:2] if isinstance(f, Gantt))
    assert first.rows == (
        *("no compute", "stream 7", "stream 20"),
        *("T_lb: engine", "T_lb: collectives", "thread 1"),
    )
    drawn = {
        name: sum(m.busy_ns for m in first.marks if m.row == 0 and m.time_class == name)
        for name in ("R1", "R2", "R3", "H1", "floor")
    }
    assert drawn == {"R1": 6 * US, "R2": 6 * US, "R3": 10 * US, "H1": 10 * US, "floor": 2 * US}
    bound = [m for m in first.marks if first.rows[m.row].startswith("T_lb")]
    assert max(m.end_ns for m in bound) == 76 * US
    assert {m.node for m in bound} == {"on the binding chain"}
    assert chain.id == "binding-chain"
    assert [m.label for m in chain.marks] == ["AG root", "FWD root", "BWD root"]
    assert sum(m.busy_ns for m in chain.marks) == chain.window_ns == 76 * US


def test_every_query_can_be_pasted(document: Document) -> None:
    run = modelled().run()
    for section in document.sections:
        for table in section.tables:
            assert len(run.sql(table.query)) == len(table.rows), table.id
        for figure in section.figures:
            assert len(run.sql(figure.query)) > 0, figure.id


def test_refused_verdict_keeps_the_bound_and_the_three_way_split() -> None:
    document = build(modelled(is_provisional=True, has_ladder=False).run())
    assert document.verdict.is_provisional
    assert not document.verdict.is_withheld
    assert (
        "but there is no verdict on the 24.00 us between them: the replay is off by -25.0%."
        in document.verdict.headline.text
    )
    said = _said(document)
    assert "The classes of the gap in section 3 are provisional" in said
    assert "Recoverable" not in said
    assert next(card.id for card in document.opportunities) == "finding-blocking"
    (figure,) = document.section("verdict").figures
    assert {bar.time_class for bar in figure.bars} >= {"blocking", "stalled"}
    titles = [table.title for table in document.section("budget").tables]
    assert any(title.endswith("(provisional)") for title in titles)
    assert "ladder" not in [table.id for table in document.section("budget").tables]
    assert "no verdict on what it is" in text.summary(document)


def test_withheld_ladder_leaves_the_classes() -> None:
    document = build(modelled(has_ladder=False).run())
    said = _said(document)
    assert "No what-if: 2 blocking calls inside the step. T_lb and the classes stand." in said
    assert "Recoverable" in said
    assert all(card.modelled is None for card in document.opportunities)
    assert "No what-if ladder: 2 blocking calls" in _said(document, "budget")


def test_small_gap_is_called_little() -> None:
    made = modelled()
    for name in ("r1_ns", "r2_ns", "r3_ns"):
        made.con.execute(f"UPDATE v1.step_gap SET h2_ns = h2_ns + {name}, {name} = 0")
    made.con.execute("UPDATE v1.step_gap SET gap_ns = floor_ns, t_lb_ns = observed_ns - floor_ns")
    made.con.execute("UPDATE v1.gap_piece SET gap_class = 'H2' WHERE gap_class LIKE 'R_'")
    document = build(made.run())
    assert "little is left, at most 2.00 us (2.0 %) could be got back" in (
        document.verdict.headline.text
    )
    assert "32.00 us (32.0 %) are hard idle" in document.verdict.headline.text
    assert "No recoverable class reaches 1.0 %" in _said(document, "opportunities")


def _lengthen(made: Maker, step: int, by: int) -> None:
    """One step of both ranks longer, by late launch on rank 0 and by waiting for it on rank 1."""
    at = step * STEP
    for rank, name, cause, last in ((0, "R1", "no CUDA call", None), (1, "R3", "R1", 0)):
        made.con.execute(
            f"UPDATE v1.step_gap SET observed_ns = observed_ns + {by}, gap_ns = gap_ns + {by}, "
            f"{name}_ns = {name}_ns + {by} WHERE step_id = {step} AND rank = {rank}"
        )
        made.add(
            "gap_piece", rank=rank, step_id=step, start_ns=at + STEP, end_ns=at + STEP + by,
            gap_class=name, sub_cause=cause, culprit_rank=last, is_hidden=False,
            is_provisional=False,
        )  # fmt: skip


def test_a_fault_in_some_steps_is_not_hidden_by_the_median_one() -> None:
    made = modelled()
    for name in ("r1_ns", "r2_ns", "r3_ns"):
        made.con.execute(f"UPDATE v1.step_gap SET h2_ns = h2_ns + {name}, {name} = 0")
    made.con.execute("UPDATE v1.step_gap SET gap_ns = floor_ns, t_lb_ns = observed_ns - floor_ns")
    made.con.execute("UPDATE v1.gap_piece SET gap_class = 'H2' WHERE gap_class LIKE 'R_'")
    _lengthen(made, 2, 30 * US)
    document = build(made.run())
    headline = document.verdict.headline.text
    assert "little is left" not in headline
    assert headline == (
        "1 of 3 steps on rank 0 is 31.00 us longer than the others (130.0 us against 99.00 us): "
        "R1 late launch on rank 0 is 30.00 us longer. The rules allow 97.33 us for the same work "
        "(T_lb, a program-order bound): at most 12.00 us (11.0 %), mean over the steps, could be "
        "got back with the order of launches unchanged."
    )
    assert document.verdict.step_id == 2
    assert "step 2, a long one" in _said(document)
    assert "rank 1 waits 10.00 us for rank 0, whose own reason is R1 late launch" in _said(document)
    first = document.opportunities[0]
    assert (first.id, first.time.value) == ("finding-r1", 10 * US)
    assert "means over the steps" in first.evidence[0].text
    assert {row["step_id"] for row in _table(document, "gaps")} == {2}
    assert {row["median_step_id"] for row in _table(document, "ranks-table")} == {2}


def _with_clocks(hertz: tuple[float, ...], covered: float = 1.0) -> Document:
    """Step 2 computes 30 us longer than the other two; `hertz` are the clocks of the steps."""
    made = modelled()
    made.con.execute(
        f"UPDATE v1.step_gap SET observed_ns = observed_ns + {30 * US}, "
        f"compute_ns = compute_ns + {30 * US}, t_lb_ns = t_lb_ns + {30 * US} WHERE step_id = 2"
    )
    run = made.run()
    made.con.execute("CREATE TABLE clock (step_id BIGINT, mean_hz DOUBLE)")
    made.con.executemany("INSERT INTO clock VALUES (?, ?)", [*enumerate(hertz), (9, 1e9)])
    made.con.execute(
        "DROP TABLE v1.step_gpu_clock; CREATE VIEW v1.step_gpu_clock AS SELECT g.rank, g.step_id, "
        f"60 AS sample_count, {covered}::DOUBLE AS covered_share, c.mean_hz, c.mean_hz AS min_hz, "
        "c.mean_hz AS max_hz, g.compute_ns, g.compute_ns * c.mean_hz / 1e9 AS compute_cycles "
        "FROM v1.step_gap AS g INNER JOIN clock AS c ON g.step_id = c.step_id"
    )
    return build(run)


def test_the_clock_that_makes_steps_longer_is_said_with_its_share() -> None:
    document = _with_clocks((1.4e9, 1.4e9, 1.0e9))
    assert document.verdict.headline.text.startswith(
        "1 of 3 steps on rank 0 is 31.00 us longer than the others (130.0 us against 99.00 us): "
        "compute is 30.00 us longer"
    )
    # 66 us at 1.4 GHz are 92,400 cycles, 96 us at 1.0 GHz are 96,000: 3,600 more, 2.57 us of 1.4 GHz.
    expected = (
        "The longer steps compute at a mean GPU clock of 1,000 MHz, the others at 1,400 MHz. "
        "Compute is 30.00 us longer in them; counted in cycles, at equal clock, it would be "
        "2.57 us longer: the clock explains 91.4 % of that; why it is lower, these samples do not "
        "say."
    )
    (said,) = [one for one in document.verdict.statements if one.claim == "gpu-clock"]
    assert said.text == expected
    assert any(claim.id == "gpu-clock" for claim in document.claims)
    # Renderers break lines and keep a number with its unit.
    for rendered in (text.render(document), html.render(document, charts=False)):
        assert "the clock explains 91.4 % of that" in " ".join(rendered.split())


def test_a_clock_that_is_no_lower_explains_nothing() -> None:
    said = _said(_with_clocks((1.0e9, 1.0e9, 1.1e9)))
    assert "the clock explains none of that." in said
    assert "it would be 39.60 us longer" in said


@pytest.mark.parametrize(
    ("hertz", "covered"),
    [((), 1.0), ((1.4e9, 1.4e9), 1.0), ((1.4e9, 1.4e9, 1.0e9), 0.5)],
    ids=["no samples", "not in every step", "holes"],
)
def test_no_word_of_clocks_where_samples_do_not_cover_the_steps(
    hertz: tuple[float, ...], covered: float
) -> None:
    document = _with_clocks(hertz, covered)
    assert "compute is 30.00 us longer" in document.verdict.headline.text
    assert "clock explains" not in _said(document)
    assert "gpu-clock" not in {one.claim for one in document.verdict.statements}


def test_clocks_are_no_matter_where_compute_is_as_long() -> None:
    made = modelled()
    _lengthen(made, 2, 30 * US)
    run = made.run()
    made.con.execute(
        "DROP TABLE v1.step_gpu_clock; CREATE VIEW v1.step_gpu_clock AS SELECT rank, step_id, 60 AS sample_count, "
        "1.0 AS covered_share, 1e9 AS mean_hz, 1e9 AS min_hz, 1e9 AS max_hz, compute_ns, "
        "compute_ns + 0.0 AS compute_cycles FROM v1.step_gap"
    )
    assert "clock explains" not in _said(build(run))


def test_a_class_that_the_shown_step_lacks_is_explained_where_it_is_largest() -> None:
    made = modelled()
    made.con.execute(
        "UPDATE v1.gap_piece SET gap_class = 'R1' WHERE gap_class = 'R3' AND step_id = 2"
    )
    made.con.execute("UPDATE v1.step_gap SET r1_ns = r1_ns + r3_ns, r3_ns = 0 WHERE step_id = 2")
    _lengthen(made, 2, 30 * US)
    document = build(made.run())
    assert document.verdict.step_id == 2
    (card,) = [card for card in document.opportunities if card.id == "finding-r3"]
    said = " ".join(statement.text for statement in card.evidence)
    assert "In step 0: " in said
    assert "last came, for its own reason: rank 1" in said


def test_a_run_that_lacks_ranks_has_no_rung_of_skew() -> None:
    """Some of the ranks that take part were captured, so that R3 of these is seen."""
    made = modelled()
    made.con.execute("DELETE FROM v1.what_if WHERE contains(removed, 'R3')")
    # The laggard computed longer: no rung stands for that either.
    made.con.execute("UPDATE v1.gap_piece SET sub_cause = 'compute' WHERE gap_class = 'R3'")
    made.con.execute(
        "INSERT INTO v1.model_check (check_name, status, detail) "
        "VALUES ('collectives_matched', 'warn', '3 collectives of the program lack participants')"
    )
    document = build(made.run())
    assert any(card.id == "finding-r3" for card in document.opportunities)
    assert "are inside T_lb" in document.verdict.headline.text
    said = _said(document)
    assert ": without R1 and R2 " in said
    assert "without R3" not in said


def test_hard_time_that_waits_for_nothing_is_told_apart() -> None:
    made = modelled()
    made.con.execute(
        "UPDATE v1.gap_piece SET awaited_node = NULL, gap_class = 'H1' WHERE gap_class = 'R3'"
    )
    made.con.execute(
        "UPDATE v1.step_gap SET h1_ns = h1_ns + r3_ns, gap_ns = gap_ns - r3_ns, "
        "t_lb_ns = t_lb_ns + r3_ns, r3_ns = 0"
    )
    document = build(made.run())
    assert (
        "H1 structural idle 20.00 us: 10.00 us waiting for AG(root) (nothing of the step could run "
        "beside it), 10.00 us more would be idle in the bound as well"
    ) in _said(document)
    card = next(card for card in document.opportunities if card.id == "finding-h1")
    assert "10.00 us more would be idle" in card.evidence[0].text


def test_bound_by_the_shortest_participant_is_told_where_it_differs(document: Document) -> None:
    assert "shortest participant" not in _said(document)
    made = modelled()
    made.con.execute("UPDATE v1.step_bound SET shortest_ns = t_lb_ns - 6000")
    document = build(made.run())
    assert "the bound lies between 70.00 us and 76.00 us" in _said(document)
    rows = {row["limits"]: row["bound"] for row in _table(document, "bounds")}
    assert rows["every transfer as long as its shortest participant"].value == 70 * US


def test_a_tip_that_the_model_finds_worthless_says_so() -> None:
    made = modelled()
    made.con.execute("UPDATE v1.what_if_change SET step_ns = (101 - rank) * 1000")
    document = build(made.run())
    card = next(card for card in document.opportunities if card.id == "finding-r2-hw-queue")
    assert card.what_to_try[0].endswith("(modelled: nothing here)")
    assert not any("(modelled" in tip for tip in card.what_to_try[1:])
    assert [row["saved_ns"] for row in _table(document, "changes")] == ["-"]
    assert "more hardware queues  101.0 us      -" in text.render(document)
    notes = next(t for t in document.section("budget").tables if t.id == "changes").notes
    assert notes == ("more hardware queues: no stream shares a hardware queue.",)


def test_hard_tips_say_what_is_in_the_way() -> None:
    made = modelled()
    made.con.execute("UPDATE v1.gap_piece SET gap_class = 'H2' WHERE gap_class = 'H1'")
    made.con.execute("UPDATE v1.step_gap SET h2_ns = h1_ns, h1_ns = 0")
    for step in range(3):
        made.add(
            "what_if_change", rank=0, step_id=step, change="explicit prefetch depth 1",
            step_ns=101 * US,
        )  # fmt: skip
    card = next(c for c in build(made.run()).opportunities if c.id == "finding-h2")
    marked = [
        tip for tip in card.what_to_try if "(modelled: nothing while R3 is in the way)" in tip
    ]
    assert [tip.split()[0] for tip in marked] == ["Prefetch"]


def test_parts_of_the_first_screen_add_up(document: Document) -> None:
    parts = {part.label: part.time.value for part in document.verdict.parts}
    assert sum(parts.values()) - parts["T_lb"] == document.verdict.step.value
    assert parts["other"] == 2 * US


def test_boundary_steps_stand_for_nothing() -> None:
    made = modelled()
    made.con.execute("UPDATE v1.step_gap SET is_boundary = true WHERE step_id = 1")
    assert build(made.run()).verdict.step_id != 1


def test_without_a_pack_the_reason_is_said_once() -> None:
    made = two_ranks()
    made.add(
        "model_check", check_name="rule_pack", status="info", detail="no FSDP2 labels",
        withholds="bound",
    )  # fmt: skip
    document = build(made.run())
    missing = document.section("verdict").missing
    assert [
        item.text.startswith("No lower bound (T_lb): no FSDP2 labels.") for item in missing
    ] == [True]
    assert document.verdict.t_lb is None
    assert document.opportunities[0].id == "finding-blocking"


def test_ranks_say_who_came_last(document: Document) -> None:
    # The hand-made collectives have no group: nothing is matched, but the clocks are there.
    assert [row["rank"] for row in _table(document, "clocks")] == [0, 1]
    assert "rank 0 waits 10.00 us for rank 1" in _said(document, "ranks") or (
        document.section("ranks").missing
    )


def test_ranks_and_rungs_that_read_alike_are_one_number() -> None:
    made = modelled()
    # Below what four digits show.
    made.con.execute(
        "UPDATE v1.gpu_op SET start_ns = start_ns - 1_999 WHERE rank = 1 AND op_id % 3 = 0"
    )
    made.con.execute("UPDATE v1.what_if SET stretched_ns = step_ns + 1")
    document = build(made.run())
    assert "compute in it 66.00 us on every rank." in _said(document, "ranks")
    said = _said(document)
    assert "without R1, R2 and R3 78.00 us; replayed as executed" in said
    assert "The longer ones" not in said


def test_all_forms_say_it(document: Document) -> None:
    for rendered in (
        html.render(document, charts=False).replace("\xa0", " "),
        markdown.render(document),
        text.render(document),
    ):
        assert "T_lb" in rendered
        assert "more hardware queues" in rendered
        assert "modelled step without it" in rendered
        assert "more hardware queues: no stream shares a hardware queue." in " ".join(
            rendered.split()
        )
    assert max(map(len, text.render(document).splitlines())) <= text.WIDTH
    assert text.summary(document).splitlines()[1] == (
        "gapscope: T_lb 76.00 us, above it 24.00 us (24.0 %): R3 10.00 us, R1 6.00 us, R2 6.00 us, "
        "other 2.00 us"
    )
    page = html.render(document)
    assert len(page.encode()) < html.SIZE_LIMIT
    assert len(html.render(document, charts=False).encode()) < 300_000
