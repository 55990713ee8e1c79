"""A capture whose steps are slower than those of the same run without a profiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapscope.ingest.pipeline import ingest
from gapscope.render import json as json_form
from gapscope.render import markdown, text
from gapscope.report.build import build
from gapscope.report.document import Document
from gapscope.run import open_run

from .nsys_steps import MS, Capture

SLOW = 34_600 * MS
DECLARED = {"run": {"reference_step_ms": [29_390.0]}}


def _report(directory: Path, declared: dict[str, dict[str, object]]) -> Document:
    capture = Capture(rank=0, world=1)
    at = 0
    for number in range(4):
        at = capture.step(number, at, SLOW, compute=20_000 * MS)
    # 0.23 s in all, 0.2 s of them inside steps.
    capture.overhead(10 * MS, 210 * MS)
    capture.overhead(at + 10 * MS, at + 40 * MS)
    source = capture.write(directory / "slow.sqlite")
    ingest([source], directory / "run", declared=declared)
    with open_run(directory / "run") as run:
        rows = run.sql(
            "SELECT sum(volume_ns)::BIGINT AS volume_ns, sum(in_steps_ns)::BIGINT AS in_steps_ns "
            "FROM v1.profiler_activity"
        ).to_dicts()
        assert rows == [{"volume_ns": 230 * MS, "in_steps_ns": 200 * MS}]
        return build(run)


@pytest.fixture(scope="module")
def perturbed(tmp_path_factory: pytest.TempPathFactory) -> Document:
    return _report(tmp_path_factory.mktemp("perturbed"), DECLARED)


def _said(document: Document) -> str:
    return "\n".join(
        statement.text for statement in (document.verdict.headline, *document.verdict.statements)
    )


def test_the_slowdown_is_that_of_the_steps_and_not_of_the_overhead_table(
    perturbed: Document,
) -> None:
    said = _said(perturbed)
    assert "profiled steps of rank 0 take 34.60 s (n=4" in said
    assert "unprofiled ones 29.39 s (n=1" in said
    assert "17.7 % slower" in said
    table = next(
        table for table in perturbed.section("quality").tables if table.id == "perturbation"
    )
    row = dict(zip((column.key for column in table.columns), table.rows[0], strict=True))
    assert row["verdict"] == "perturbed"
    assert row["slowdown"] == pytest.approx(34.60 / 29.39 - 1)
    assert (row["profiled_median_ns"], row["reference_median_ns"]) == (SLOW, 29_390 * MS)


def test_nothing_is_corrected(perturbed: Document) -> None:
    assert perturbed.verdict.step is not None
    assert perturbed.verdict.step.value == SLOW
    assert "none is corrected" in _said(perturbed)


def test_verdict_and_ceilings_carry_the_label_in_every_form(perturbed: Document) -> None:
    assert perturbed.verdict.labels == ("perturbed",)
    assert perturbed.verdict.headline.text.startswith("[perturbed] A step takes 34.60 s")
    assert perturbed.opportunities
    assert all(card.labels == ("perturbed",) for card in perturbed.opportunities)
    assert "throughput, perturbed;" in markdown.render(perturbed)
    assert "throughput, perturbed;" in " ".join(text.render(perturbed).split())
    assert '"labels": [\n    "perturbed"\n   ]' in json_form.render(perturbed)


def test_quality_says_what_it_forbids(perturbed: Document) -> None:
    checks = next(
        table for table in perturbed.section("quality").tables if table.id == "quality-checks"
    )
    (row,) = [row for row in checks.rows if "perturbation" in row]
    assert "warn" in row
    assert any("+17.7 %" in str(cell) and "230.000 ms" in str(cell) for cell in row)


def test_without_a_reference_nothing_is_said_and_the_contract_asks_for_one(tmp_path: Path) -> None:
    document = _report(tmp_path, {})
    assert document.verdict.labels == ()
    assert "perturbed" not in _said(document).lower()
    missing = next(
        table for table in document.section("quality").tables if table.id == "contract-missing"
    )
    (limits,) = [limits for items, limits in missing.rows if "reference_step_ms" in str(items)]
    assert "whether profiling slowed this one is unknown" in str(limits)


def test_a_difference_within_the_natural_spread_is_no_perturbation(tmp_path: Path) -> None:
    times = [29_000.0, 36_000.0, 33_000.0]
    document = _report(tmp_path, {"run": {"reference_step_ms": times}})
    assert document.verdict.labels == ()
    checks = next(
        table for table in document.section("quality").tables if table.id == "quality-checks"
    )
    (row,) = [row for row in checks.rows if "perturbation" in row]
    assert "ok" in row
