"""What the report must say about captures of other people; they stay outside the repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapscope.ingest.pipeline import ingest
from gapscope.report.document import Gantt
from gapscope.run import open_run

if TYPE_CHECKING:
    from pathlib import Path

    from gapscope.report.document import Document


def _report(source: Path, out: Path) -> Document:
    with open_run(ingest([source], out, workers=1).out) as run:
        return run.report()


def test_healthy_capture_gives_no_finding(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "data" / "public" / "healthy_1pct.sqlite"
    document = _report(source, tmp_path / "run")
    assert not document.verdict.is_withheld
    # Kernels fill the window: a question for another tool, and nothing to get back.
    assert [card.id for card in document.opportunities] == ["finding-kernels"]
    assert document.opportunities[0].ceiling is None
    assert any(s.text.startswith("No finding") for s in document.verdict.statements)


def test_copy_bound_capture_is_not_called_cpu_bound(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "data" / "public" / "h100_2gpu_1s.sqlite"
    document = _report(source, tmp_path / "run")
    said = " ".join(statement.text for statement in document.verdict.statements)
    assert "Copy-bound, not CPU-bound: copies occupy 97.0 % of the capture" in said
    assert "idle only 0.7 %" in said
    assert "HtoD (pinned to device memory)" in said
    assert document.opportunities[0].title == "blocking: compute waits for copies"
    assert [card.id for card in document.opportunities] == ["finding-blocking"]
    card = document.opportunities[0]
    assert card.ceiling is None
    assert not any("pin_memory" in tip or "FSDP" in tip for tip in card.what_to_try)
    figure = next(f for f in document.section("budget").figures if isinstance(f, Gantt))
    stalled = sum(m.end_ns - m.start_ns for m in figure.marks if m.time_class == "stalled")
    assert document.verdict.stalled is not None
    assert stalled == document.verdict.stalled.value


def test_cpu_only_capture_is_refused(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "data" / "public" / "hta_cpu_only.json.gz"
    document = _report(source, tmp_path / "run")
    assert document.verdict.is_withheld
    assert document.opportunities == ()


def test_rocm_capture_names_the_collective_and_no_cuda_knob(
    shared_data: Path, tmp_path: Path
) -> None:
    source = shared_data / "data" / "public" / "tl_mi300_resnet.json.gz"
    document = _report(source, tmp_path / "run")
    blocking = document.opportunities[0]
    assert blocking.title == "blocking: compute waits for communication"
    assert any("ncclDevKernel_Generic" in item.text for item in blocking.evidence)
    tried = " ".join(tip for card in document.opportunities for tip in card.what_to_try)
    assert "nsys" not in tried
    assert "CUDA" not in tried
    stalled = document.opportunities[1]
    assert any("granularity of timestamps" in item.text for item in stalled.evidence)
    assert "Many short pieces" not in tried
