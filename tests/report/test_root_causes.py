"""Without the program's source a root cause stops at the phenomenon; a knob needs a proven cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapscope.report.build import build

from .tiny import US, two_ranks

if TYPE_CHECKING:
    from gapscope.report.document import Document

    from .tiny import Maker


def _stacked(*, source: bool, named: bool = True, share: int = 1) -> Maker:
    """`two_ranks` whose stacks name the line of each launch, on every `share`-th launch."""
    made = two_ranks()
    lines = ("model.py(10): first", "comm.py(20): gather", "model.py(30): second")
    kernels = ("my_gemm", "ncclDevKernel_AllGather_RING_LL", "other_gemm")
    for rank in (0, 1):
        for ordinal in range(0, 9, share):
            made.add(
                "call_stack", rank=rank, thread=1, ordinal=ordinal,
                name=kernels[ordinal % 3] if named else None,
                stack=f"train.py(1): main;{lines[ordinal % 3]};<built-in function launch>",
            )  # fmt: skip
    if source:
        made.add("run_option", name="run", value='{"source": "https://example.org/program"}')
    return made


def _rows(document: Document) -> list[dict[str, Any]]:
    section = document.section("opportunities")
    found = [table for table in section.tables if table.id == "root-causes"]
    if not found:
        return []
    keys = [column.key for column in found[0].columns]
    return [dict(zip(keys, row, strict=True)) for row in found[0].rows]


def _said(document: Document) -> str:
    return " ".join(item.text for item in document.section("opportunities").statements)


def test_without_stacks_nothing_is_said_of_root_causes() -> None:
    document = build(two_ranks().run())
    assert _rows(document) == []
    assert "stack" not in _said(document)


def test_with_source_a_cause_has_mechanism_and_knob() -> None:
    document = build(_stacked(source=True).run())
    rows = {row["mechanism"]: row for row in _rows(document)}
    gather = rows["comm.py(20): gather"]
    # 20 us of blocking in the median step of 100 us, held by the gather.
    assert (gather["total_ns"], gather["piece_count"]) == (20 * US, 1)
    assert gather["phenomenon"] == "blocking, held by an op that was running"
    assert gather["knob"] == "Start collectives earlier, or send fewer bytes"
    assert gather["status"] == "inferred"
    assert "9 of 9 launches (100.0 %) are linked, all of them checked" in _said(document)


def test_without_source_it_stops_at_phenomena() -> None:
    document = build(_stacked(source=False).run())
    rows = _rows(document)
    assert {row["mechanism"] for row in rows} == {""}
    assert {row["knob"] for row in rows} == {""}
    assert {row["status"] for row in rows} == {"measured"}
    assert len({row["phenomenon"] for row in rows}) == len(rows)
    assert "stop at phenomena" in _said(document)


def test_the_link_rate_stands_beside_and_names_nothing_that_was_not_linked() -> None:
    document = build(_stacked(source=True, share=3).run())
    assert "3 of 9 launches (33.3 %) are linked" in _said(document)
    held = next(row for row in _rows(document) if row["phenomenon"].startswith("blocking"))
    assert (held["mechanism"], held["knob"], held["status"]) == ("", "", "measured")


def test_stacks_without_kernel_names_are_not_verified() -> None:
    document = build(_stacked(source=True, named=False).run())
    assert "none of them checked: the table of stacks names no kernels" in _said(document)
    assert "unverified" in {row["status"] for row in _rows(document)}


def test_stacks_of_other_kernels_are_no_stacks() -> None:
    made = _stacked(source=True)
    made.con.execute("UPDATE v1.call_stack SET name = 'another'")
    document = build(made.run())
    assert _rows(document) == []
    assert "No call stack could be linked" in _said(document)
