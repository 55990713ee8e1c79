"""Two anchors that disagree on what a step is."""

from __future__ import annotations

from pathlib import Path

from gapscope.ingest.pipeline import ingest
from gapscope.report.build import build
from gapscope.run import Run, open_run

from .nsys_steps import MS, Capture

STEPS = 5
MICRO = 2


def _capture(directory: Path) -> Path:
    """Ranges around each of two micro-batches, and the optimizer's around every second one."""
    capture = Capture(rank=0, world=1)
    at = 0
    for number in range(STEPS * MICRO):
        if number % MICRO:
            capture.range("optimizer_step", at + 5 * MS, at + 6 * MS)
        at = capture.step(number, at, 100 * MS, 60 * MS, label="iteration")
    return capture.write(directory / "micro.sqlite")


def _quality(run: Run) -> dict[str, tuple[str, str]]:
    return {
        row["check_name"]: (row["status"], row["detail"])
        for row in run.quality().to_dicts()
        if row["check_name"] in ("anchor_agreement", "step_anchor")
    }


def test_disagreement_leaves_the_budget_and_names_both(tmp_path: Path) -> None:
    ingest([_capture(tmp_path)], tmp_path / "run")
    with open_run(tmp_path / "run") as run:
        status, detail = _quality(run)["anchor_agreement"]
        withheld = run.sql("SELECT check_name FROM v1.model_check WHERE withholds = 'bound'")
        document = build(run)
    assert status == "fail"
    assert "nvtx_step (10 steps, median 100.000 ms)" in detail
    assert "optimizer (5 steps, median 200.000 ms)" in detail
    assert withheld.to_dicts() == [{"check_name": "step_anchor"}]
    assert document.verdict.is_withheld
    assert "median 200.000 ms" in document.verdict.headline.text
    assert document.opportunities == ()
    budget = next(table for table in document.section("budget").tables if table.id == "steps")
    assert budget.rows


def test_the_user_ends_it(tmp_path: Path) -> None:
    ingest([_capture(tmp_path)], tmp_path / "run", steps=r"iteration \d+")
    with open_run(tmp_path / "run") as run:
        assert _quality(run)["anchor_agreement"][0] == "info"
        assert len(run.sql("FROM v1.step").to_dicts()) == STEPS * MICRO
        assert not build(run).verdict.is_withheld
