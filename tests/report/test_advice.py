"""Evidence is about the time of its card, and advice is given only where it applies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gapscope.render import text
from gapscope.report import queries
from gapscope.report.build import build
from gapscope.report.document import Gantt
from gapscope.report.setting import Shape

from .tiny import STEP, US, Maker, two_ranks

if TYPE_CHECKING:
    from gapscope.report.document import Document, Opportunity

MS = 1000 * US


def _card(document: Document, name: str) -> Opportunity:
    return next(card for card in document.opportunities if card.id == f"finding-{name}")


def _said(card: Opportunity) -> str:
    return " ".join(item.text for item in card.evidence)


def _call(made: Maker, call: int, name: str, start: int, end: int) -> None:
    made.add(
        "api_call",
        rank=0,
        call_id=call,
        process_id=100,
        tid=1,
        domain="runtime",
        name_id=made.name(0, name),
        correlation_id=1000 + call,
        start_ns=start,
        end_ns=end,
    )


def _late(**about: Any) -> Maker:
    """Four steps of 20 ms; 9 ms pass between two gemms before the second one is issued."""
    made = Maker()
    made.rank(0, **about)
    for step in range(4):
        t = step * 20 * MS
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
            end_ns=t + 20 * MS,
        )
        made.launch(0, 2 * step, "my_gemm", 7, (t, t + US), (t + 2 * US, t + 2 * MS))
        late = t + 11 * MS
        made.launch(0, 2 * step + 1, "my_gemm", 7, (late - US, late), (late + US, t + 20 * MS))
        # 4 ms while the device starves, with a call inside, and one while it is busy.
        _call(made, 100 + 10 * step, "cudaStreamSynchronize", t + 3 * MS, t + 7 * MS)
        _call(made, 101 + 10 * step, "cudaEventQuery", t + 4 * MS, t + 5 * MS)
        _call(made, 102 + 10 * step, "cudaDeviceSynchronize", t + 12 * MS, t + 19 * MS)
    return made


def test_starved_evidence_is_about_the_starved_time() -> None:
    run = _late().run()
    document = build(run)
    card = _card(document, "launch-starved")
    said = _said(card)
    assert "cudaStreamSynchronize` 4.00 ms" in said
    assert "cudaDeviceSynchronize" not in said
    assert "cudaEventQuery" not in said
    assert "The host was outside CUDA for 5.00 ms of 9.00 ms" in said
    window = queries.Window(0, "device", document.verdict.step_id or 0)
    rows = run.sql(queries.starved_host(window)).to_dicts()
    assert sum(row["overlap_ns"] for row in rows) == card.time.value


def test_calls_that_were_not_recorded_are_said() -> None:
    """The last call of the capture ends 1 ms before the last step does; calls of others are whole."""
    said = " ".join(text.render(build(_late().run())).split())
    assert "cudaDeviceSynchronize` 7.00 ms" in said
    assert "were not recorded" not in said
    made = _late()
    made.con.execute("DELETE FROM v1.range WHERE range_id < 3")
    said = " ".join(text.render(build(made.run())).split())
    assert "launch-starved. Calls of its last 1.00 ms were not recorded." in said


def _before_a_graph() -> Maker:
    """Steps of 20 ms: 3 ms without compute before a kernel, 5 ms before a graph of thread 2."""
    made = Maker()
    made.rank(0)
    for step in range(3):
        t = step * 20 * MS
        made.add(
            "range", rank=0, range_id=step, process_id=100, tid=1, domain="default",
            kind="push_pop", name_id=made.name(0, f"step {step}"), start_ns=t, end_ns=t + 20 * MS,
        )  # fmt: skip
        first = 3 * step
        for place, (begin, end) in enumerate(((0, 2 * MS), (5 * MS, 6 * MS), (11 * MS, 20 * MS))):
            call, device = (t + begin, t + begin + US), (t + begin + US, t + end)
            made.launch(0, first + place, "my_gemm", 7, call, device)
        _call(made, 100 + step, "cudaEventQuery", t + 3 * MS, t + 4 * MS)
        _call(made, 200 + step, "cudaEventQuery", t + 7 * MS, t + 9 * MS)
    made.con.execute("UPDATE v1.gpu_op SET kind = 'graph' WHERE op_id % 3 = 2")
    made.con.execute(
        "UPDATE v1.api_call SET tid = 2 WHERE call_id >= 200 OR (call_id < 100 AND call_id % 3 = 2)"
    )
    return made


def test_the_ceiling_names_the_time_that_it_uses() -> None:
    document = build(_before_a_graph().run())
    card = _card(document, "launch-starved")
    assert card.time.value == pytest.approx(3 * MS, abs=5 * US)
    said = " ".join(item.text for item in document.verdict.statements)
    assert (
        "if 3.00 ms (8.00 ms less what ends with the launch of a CUDA graph) vanished and nothing "
        "else grew" in said
    )
    alone = build(_late().run())
    said = " ".join(item.text for item in alone.verdict.statements)
    assert "if 9.00 ms vanished and nothing else grew" in said


def test_calls_of_several_threads_are_added_up_by_function() -> None:
    said = _said(_card(build(_before_a_graph().run()), "launch-starved"))
    assert said.count("`cudaEventQuery`") == 1
    assert "spent most in `cudaEventQuery` 3.00 ms" in said


def test_one_long_piece_puts_the_host_first() -> None:
    card = _card(build(_late().run()), "launch-starved")
    assert card.what_to_try[0].startswith("Look for what delays the launching thread")


def test_many_short_pieces_put_the_launches_first() -> None:
    made = Maker()
    made.rank(0)
    for op in range(20):
        t = op * 20 * US
        made.launch(0, op, "my_gemm", 7, (t, t + 5 * US), (t + 8 * US, t + 20 * US))
    card = _card(build(made.run()), "launch-starved")
    assert "CUDA graph" in card.what_to_try[0]
    assert "it may be an accident" not in _said(card)


@pytest.mark.parametrize(
    ("row", "tag"),
    [
        ({"max_share": 0.9, "median_ns": 100, "long_ns": 0, "total_ns": 10_000}, "long"),
        ({"max_share": 0.1, "median_ns": 2_000_000, "long_ns": 9, "total_ns": 10}, "long"),
        ({"max_share": 0.2, "median_ns": 60_000, "long_ns": 9, "total_ns": 10}, "long"),
        ({"max_share": 0.1, "median_ns": 5_000, "long_ns": 0, "total_ns": 10}, "short"),
        ({"max_share": 0.1, "median_ns": 1, "long_ns": 0, "total_ns": 10}, "grain"),
    ],
)
def test_shape_of_pieces(row: dict[str, Any], tag: str) -> None:
    assert Shape.of(row).tag == tag


def test_amd_gets_no_advice_for_cuda() -> None:
    made = _late(device_name="AMD Instinct MI300X", source_format="kineto")
    document = build(made.run())
    tried = " ".join(tip for card in document.opportunities for tip in card.what_to_try)
    assert "nsys" not in tried
    assert "CUDA" not in tried
    assert "HIP graph" in tried
    assert "outside HIP" in _said(_card(document, "launch-starved"))


def test_nsys_flags_and_fsdp_knobs_need_their_captures() -> None:
    made = two_ranks(source_format="kineto")
    tried = " ".join(tip for card in build(made.run()).opportunities for tip in card.what_to_try)
    assert "nsys" not in tried
    assert "FSDP" not in tried
    assert "set_modules" not in tried


def test_fsdp_knobs_with_fsdp_ranges() -> None:
    made = two_ranks()
    for rank in (0, 1):
        made.add(
            "range",
            rank=rank,
            range_id=90,
            process_id=100 + rank,
            tid=1,
            domain="default",
            kind="push_pop",
            name_id=made.name(rank, "FSDP::pre_forward"),
            start_ns=US,
            end_ns=2 * US,
        )
    tried = _card(build(made.run()), "blocking").what_to_try
    assert any("set_modules_to_forward_prefetch" in tip for tip in tried)


def test_pinned_copies_are_not_told_to_pin() -> None:
    for memory, is_told in (("pinned", False), ("pageable", True)):
        made = Maker()
        made.rank(0)
        made.launch(0, 0, "my_gemm", 7, (0, 1 * US), (10 * US, 20 * US))
        made.launch(0, 2, "my_gemm", 7, (4 * US, 5 * US), (920 * US, 930 * US))
        made.launch(0, 1, "x", 7, (2 * US, 3 * US), (20 * US, 920 * US))
        made.con.execute(
            "UPDATE v1.gpu_op SET kind = 'memcpy', copy_kind = 'HtoD', src_memory = ?, "
            "dst_memory = 'device', bytes = 25000000 WHERE op_id = 1",
            [memory],
        )
        tried = " ".join(_card(build(made.run()), "blocking").what_to_try)
        assert ("pin_memory" in tried) is is_told
        assert ("pinned already" in tried) is not is_told


def test_no_ceiling_for_a_capture_without_steps() -> None:
    made = Maker()
    made.rank(0)
    made.launch(0, 0, "my_gemm", 7, (0, 2 * US), (10 * US, 50 * US))
    made.launch(0, 1, "my_gemm", 7, (53 * US, 54 * US), (60 * US, 90 * US))
    document = build(made.run())
    assert document.opportunities
    assert all(card.ceiling is None for card in document.opportunities)
    assert "ceiling +" not in text.render(document)
    assert "throughput" not in text.render(document)


def test_only_waits_that_an_op_follows_count() -> None:
    made = two_ranks()
    for rank in (0, 1):
        made.add(
            "stream_wait",
            rank=rank,
            process_id=100 + rank,
            device=rank,
            context=1,
            wait_id=77,
            stream=99,
            event_id=55,
            event_sync_id=55,
            correlation_id=99_999,
        )
    document = build(made.run())
    said = " ".join(statement.text for statement in document.verdict.statements)
    assert document.verdict.blocking_bound == "upper"
    assert "3 of 3 stream waits are resolved" in said


def test_communication_beside_blocking_is_named_instead_of_a_copy() -> None:
    made = two_ranks()
    # The second gemm follows a copy on its own stream, which itself waited for the collective.
    made.con.execute("UPDATE v1.stream_wait SET event_id = 9, event_sync_id = NULL")
    for rank in (0, 1):
        for step in range(3):
            t = step * STEP
            op = 50 + step
            made.launch(rank, op, "c", 7, (t + 6 * US, t + 7 * US), (t + 69 * US, t + 71 * US))
            made.con.execute(
                "UPDATE v1.gpu_op SET kind = 'memcpy', copy_kind = 'DtoD', correlation_id = ? "
                "WHERE rank = ? AND op_id = ?",
                [30 * step + 15, rank, op],
            )
            made.con.execute(
                "UPDATE v1.api_call SET correlation_id = ? WHERE rank = ? AND call_id = ?",
                [30 * step + 15, rank, op],
            )
    card = _card(build(made.run()), "blocking")
    assert card.title == "blocking: compute waits for communication"
    assert "ncclDevKernel_AllGather_RING_LL" in _said(card)


def test_boxes_paint_no_time_that_is_not_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapscope.report.gantt.MARK_LIMIT", 8)
    document = build(two_ranks().run())
    figure = next(f for f in document.section("budget").figures if isinstance(f, Gantt))
    drawn = {
        name: sum(m.end_ns - m.start_ns for m in figure.marks if m.time_class == name)
        for name in ("launch_starved", "blocking", "stalled")
    }
    assert drawn == {"launch_starved": 6 * US, "blocking": 20 * US, "stalled": 10 * US}
    assert "as wide as its items are long together" in figure.notes[0]


def test_steps_that_count_are_said_in_words() -> None:
    said = " ".join(s.text for s in build(two_ranks().run()).verdict.statements)
    assert "all 3 steps counted" in said
    assert "sum to it exactly" in said
