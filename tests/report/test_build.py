from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapscope.errors import GapscopeError
from gapscope.report import claims
from gapscope.report.build import build
from gapscope.report.document import Gantt, Statement, Waterfall

from .tiny import STEP, US, Maker, two_ranks

if TYPE_CHECKING:
    from gapscope.report.document import Document, Quantity


@pytest.fixture(scope="module")
def document() -> Document:
    return build(two_ranks().run())


def _numbers(
    quantity: Quantity | None,
) -> tuple[float | None, int | None, float | None, float | None]:
    assert quantity is not None
    return quantity.value, quantity.n, quantity.low, quantity.high


def test_six_sections_in_the_order_of_the_contract(document: Document) -> None:
    assert [section.id for section in document.sections] == [
        "verdict",
        "quality",
        "budget",
        "ranks",
        "opportunities",
        "claims",
    ]


def test_verdict_is_that_of_the_rank_without_compute_longest(document: Document) -> None:
    verdict = document.verdict
    assert (verdict.rank, verdict.step_id, verdict.window) == (1, 1, "device")
    assert _numbers(verdict.step) == (100 * US, 3, 98 * US, 100 * US)
    assert _numbers(verdict.compute) == (64 * US, 3, 64 * US, 64 * US)
    assert _numbers(verdict.launch_starved) == (6 * US, 3, 4 * US, 6 * US)
    assert _numbers(verdict.blocking) == (20 * US, 3, 20 * US, 20 * US)
    assert _numbers(verdict.stalled) == (10 * US, 3, 10 * US, 10 * US)
    assert _numbers(verdict.tail) == (0, 3, 0, 0)
    assert verdict.blocking_bound == "upper"
    assert "100.0 us (n=3, 98.00–100.0) on rank 1" in verdict.headline.text  # noqa: RUF001 -- a range
    assert "compute runs 64.0 %" in verdict.headline.text


def test_of_an_even_number_of_steps_the_shown_one_is_the_lower_median() -> None:
    made = Maker()
    made.rank(0)
    for step in range(4):
        made.step(0, step, label=f"step {step}")
    verdict = build(made.run()).verdict
    said = " ".join(item.text for item in verdict.statements)
    assert f"those of step {verdict.step_id}, the lower median one, and sum to it" in said
    # One rank of two was captured.
    assert (
        "Of 2 ranks only rank 0 was captured: the verdict covers it alone. What the other one does "
        "is unknown; it may be slower." in said
    )


def test_ranks_that_a_verdict_covers_are_named(document: Document) -> None:
    said = " ".join(item.text for item in build(two_ranks(world_size=8).run()).verdict.statements)
    assert (
        "Of 8 ranks only 2 were captured (0, 1): the verdict covers these alone. What the other 6 "
        "do is unknown; one of them may be slower." in said
    )
    assert "were captured" not in " ".join(item.text for item in document.verdict.statements)
    assert "the median one," in " ".join(item.text for item in document.verdict.statements)


def test_waterfall_closes_bar_by_bar(document: Document) -> None:
    (figure,) = document.section("verdict").figures
    assert isinstance(figure, Waterfall)
    observed, *parts = figure.bars
    assert observed.value_ns == STEP == sum(bar.value_ns for bar in parts)
    top = observed.value_ns
    for bar in parts:
        assert bar.base_ns + bar.value_ns == top
        top = bar.base_ns
    assert top == 0


def test_opportunities_are_ranked_by_ceiling(document: Document) -> None:
    cards = document.opportunities
    assert [card.id for card in cards] == [
        "finding-blocking",
        "finding-stalled",
        "finding-launch-starved",
    ]
    assert cards[0].ceiling.value == pytest.approx(100 / 80 - 1)
    assert "waits for communication" in cards[0].title
    assert any("AllGather" in item.text for item in cards[0].evidence)
    assert all(card.claim == "advice" for card in cards)


def test_gantt_shows_gaps_streams_and_launching_thread(document: Document) -> None:
    figure = next(f for f in document.section("budget").figures if isinstance(f, Gantt))
    assert figure.rows == ("no compute", "stream 7", "stream 20", "thread 1")
    gaps = [mark for mark in figure.marks if mark.row == 0]
    assert sum(mark.busy_ns for mark in gaps) == 36 * US
    assert {mark.time_class for mark in gaps} == {"launch_starved", "blocking", "stalled"}
    assert all(0 <= mark.start_ns < mark.end_ns <= figure.window_ns for mark in figure.marks)


def test_gantt_says_that_small_ops_share_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapscope.report.gantt.MARK_LIMIT", 8)
    made = build(two_ranks().run())
    figure = next(f for f in made.section("budget").figures if isinstance(f, Gantt))
    assert len(figure.marks) <= 8
    assert "share" in figure.notes[0]
    assert sum(mark.count for mark in figure.marks) > len(figure.marks)


def test_every_query_can_be_pasted(document: Document) -> None:
    run = two_ranks().run()
    for section in document.sections:
        for table in section.tables:
            rows = run.sql(table.query).rows()
            assert len(rows) == len(table.rows), table.id
        for figure in section.figures:
            assert len(run.sql(figure.query)) > 0, figure.id
    for card in document.opportunities:
        assert len(run.sql(card.query)) == 4


def test_ids_of_rows_are_links_that_stay(document: Document) -> None:
    steps = next(table for table in document.section("budget").tables if table.id == "steps")
    assert steps.row_ids[:3] == ("step-0", "step-1", "step-2")
    assert steps.row_ids[3] == "step-0-rank-0"
    ranks = next(table for table in document.section("ranks").tables if table.id == "ranks-table")
    assert ranks.row_ids == ("rank-1", "rank-0")


def test_every_statement_has_a_status_row(document: Document) -> None:
    known = {claim.id for claim in document.claims}
    used = {
        claim
        for claim, _ in claims.references(
            document.verdict, document.sections, document.opportunities
        )
    }
    assert used == known


def test_a_claim_without_status_row_cannot_be_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "gapscope.report.model.no_bound", lambda _: Statement("It could be 3 ms.", "unheard-of")
    )
    with pytest.raises(GapscopeError, match="unheard-of") as caught:
        build(two_ranks().run())
    assert caught.value.slug == "claim-without-status"


def test_missing_lower_bound_is_said(document: Document) -> None:
    said = document.section("verdict").missing[0].text
    assert said.startswith("No lower bound (T_lb): no step was analysed.")


def test_without_device_ops_the_refusal_is_the_verdict() -> None:
    made = Maker()
    made.rank(0)
    document = build(made.run())
    assert document.verdict.is_withheld
    assert "no device activity" in document.verdict.headline.text
    assert document.opportunities == ()
    assert document.section("budget").tables == ()


def test_empty_run_builds() -> None:
    document = build(Maker().run())
    assert document.verdict.is_withheld
    assert document.header.rank_count == 0


def test_a_failed_check_withholds_the_verdict() -> None:
    made = two_ranks()
    made.add("audit_result", rank=0, audit_name="budget_closes", failed_count=2)
    document = build(made.run())
    assert document.verdict.is_withheld
    assert "any number of this run" in document.verdict.headline.text
    assert document.opportunities == ()
    assert dict(document.quality_counts)["fail"] == 1


def test_shared_device_is_said_beside_every_budget() -> None:
    document = build(two_ranks(device_uuid="GPU-same").run())
    for name in ("verdict", "quality", "budget", "ranks"):
        texts = [statement.text for statement in document.section(name).statements]
        assert any("Ranks 0, 1 share" in text for text in texts), name


def test_without_steps_the_capture_is_budgeted_and_labelled() -> None:
    made = Maker()
    made.rank(0)
    made.launch(0, 0, "my_gemm", 7, (0, 2 * US), (10 * US, 50 * US))
    made.launch(0, 1, "my_gemm", 7, (3 * US, 4 * US), (60 * US, 90 * US))
    document = build(made.run())
    assert document.verdict.window == "capture"
    assert "whole capture" in document.verdict.headline.text
    assert any("no step was recognised" in s.text for s in document.verdict.statements)
    assert _numbers(document.verdict.step) == (80 * US, 1, 80 * US, 80 * US)


def test_nothing_below_one_percent_is_a_finding() -> None:
    made = Maker()
    made.rank(0)
    for step in range(4):
        t = step * STEP
        made.add(
            "range",
            rank=0,
            range_id=step,
            process_id=100,
            tid=1,
            domain="default",
            kind="push_pop",
            name_id=made.name(0, f"step {step}"),
            start_ns=t,
            end_ns=t + STEP,
        )
        made.launch(0, step, "my_gemm", 7, (t, t + 400), (t + 500, t + STEP))
    document = build(made.run())
    # Kernels fill the step, which is a question and no finding.
    assert [card.id for card in document.opportunities] == ["finding-kernels"]
    assert any(s.text.startswith("No finding") for s in document.verdict.statements)


def test_copies_that_hold_the_stream_are_not_called_cpu_bound() -> None:
    made = Maker()
    made.rank(0)
    made.launch(0, 0, "my_gemm", 7, (0, 1 * US), (10 * US, 20 * US))
    made.launch(0, 2, "my_gemm", 7, (4 * US, 5 * US), (920 * US, 930 * US))
    made.launch(0, 1, "x", 7, (2 * US, 3 * US), (20 * US, 920 * US))
    made.con.execute(
        "UPDATE v1.gpu_op SET kind = 'memcpy', copy_kind = 'HtoD', src_memory = 'pinned', "
        "dst_memory = 'device', bytes = 25000000 WHERE op_id = 1"
    )
    document = build(made.run())
    said = " ".join(statement.text for statement in document.verdict.statements)
    assert "Copy-bound, not CPU-bound" in said
    assert "HtoD (pinned to device memory): 1 copy, 25.00 MB at 27.78 GB/s" in said
    assert document.opportunities[0].title == "blocking: compute waits for copies"


def test_unresolved_waits_make_blocking_a_lower_bound() -> None:
    made = two_ranks()
    made.con.execute("DELETE FROM v1.event_record")
    document = build(made.run())
    assert document.verdict.blocking_bound == "lower"
    assert "blocking at least " in document.verdict.headline.text
    said = " ".join(statement.text for statement in document.verdict.statements)
    assert "3 of 3 stream waits (100.0 %) lead to no producing op" in said
