"""What the report must say about captures of other people; they stay outside the repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapscope.ingest.pipeline import ingest
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
    assert document.opportunities == ()
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


def test_cpu_only_capture_is_refused(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "data" / "public" / "hta_cpu_only.json.gz"
    document = _report(source, tmp_path / "run")
    assert document.verdict.is_withheld
    assert document.opportunities == ()
