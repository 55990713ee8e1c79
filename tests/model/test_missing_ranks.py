"""One rank of a job of two: what it waited for the other is unknown, not nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gapscope.compare.gate import Verdict, judge
from gapscope.ingest.pipeline import ingest
from gapscope.model.ladder import RUNGS
from gapscope.render.text import render
from gapscope.run import open_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gapscope.run import Run

CAPTURE = Path(__file__).resolve().parents[1] / "data" / "annotated" / "reshard_true.json.gz"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    out = ingest([CAPTURE], tmp_path_factory.mktemp("alone") / "run", workers=1).out
    with open_run(out) as opened:
        yield opened


def test_skew_is_unknown(alone: Run) -> None:
    gaps = alone.sql("SELECT r1_ns, r2_ns, r3_ns, observed_ns FROM step_gap")
    assert gaps["r3_ns"].null_count() == len(gaps) > 0
    assert gaps["r1_ns"].null_count() == gaps["r2_ns"].null_count() == 0
    (detail,) = alone.sql("SELECT detail FROM model_check WHERE check_name = 'collectives_matched'")
    assert "R3 is unknown" in detail[0]


def test_what_is_known_adds_up_to_the_step(alone: Run) -> None:
    off = alone.sql(
        "SELECT step_id FROM step_gap WHERE observed_ns <> compute_ns + work_ns + r1_ns + r2_ns + h1_ns "
        "+ h2_ns + floor_ns + unresolved_ns + carried_ns"
    )
    assert off.is_empty()


def test_nothing_is_replayed_without_it(alone: Run) -> None:
    rungs = set(alone.sql("SELECT DISTINCT removed FROM what_if")["removed"])
    assert rungs == {rung for rung in RUNGS if "R3" not in rung}
    assert alone.sql("FROM gain WHERE contains(cost, 'R3')").is_empty()


def test_no_gate_passes_on_it(alone: Run) -> None:
    (found,) = judge({"max_recoverable_percent": 99}, alone, None)
    assert found.verdict is Verdict.UNKNOWN
    assert "R3 is unknown" in found.detail


def test_the_report_says_so(alone: Run) -> None:
    text = " ".join(render(alone.report()).split())
    assert "R3 cross-rank skew unknown (ranks without a capture)" in text
    assert "R3 cross-rank skew 0" not in text
    assert "are inside T_lb" in text
