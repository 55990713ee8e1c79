"""Three captured ranks, of three stages of a job of 128."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gapscope.ingest.pipeline import ingest
from gapscope.report import survey
from gapscope.report.build import build
from gapscope.report.document import Document
from gapscope.run import open_run

from .nsys_steps import MS, Capture

RANKS = (0, 17, 71)
STEP = 100 * MS
# What a stage computes in a step: that of rank 17 is absent longest.
COMPUTE = {0: 90 * MS, 17: 40 * MS, 71: 70 * MS}
PIPELINE = {"framework": "megatron-bridge", "pipeline_parallel": 8}


def _captures(directory: Path, world: int | None = 128) -> list[Path]:
    sources = []
    for rank in RANKS:
        capture = Capture(rank, world)
        at = 0
        for number in range(4):
            at = capture.step(number, at, STEP, COMPUTE[rank])
        sources.append(capture.write(directory / f"node_{rank}.sqlite"))
    return sources


class Seen:
    """What a run says of its ranks."""

    def __init__(self, directory: Path, declared: dict[str, Any], world: int | None = 128) -> None:
        ingest(_captures(directory, world), directory / "run", declared=declared)
        with open_run(directory / "run") as run:
            self.parts = {
                row["rank"]: (row["part"], row["source"])
                for row in run.sql("FROM v1.rank_part").to_dicts()
            }
            self.survey = run.sql("FROM v1.rank_survey ORDER BY rank").to_dicts()
            self.stragglers = run.sql(survey.PARTS).to_dicts()
            self.scope = run.sql(survey.SCOPE).to_dicts()[0]
            self.boundaries = run.sql("FROM v1.step WHERE is_boundary").to_dicts()
            self.document: Document = build(run)

    @property
    def said(self) -> str:
        document = self.document
        return "\n".join(
            statement.text
            for statement in (
                document.verdict.headline,
                *document.verdict.statements,
                *document.section("ranks").statements,
            )
        )


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return Seen(tmp_path_factory.mktemp("staged"), {"run": PIPELINE})


def test_the_survey_has_every_captured_rank_with_its_stage(staged: Seen) -> None:
    assert staged.parts == {
        0: ("stage 0", "declared"),
        17: ("stage 1", "declared"),
        71: ("stage 4", "declared"),
    }
    assert [(row["rank"], row["part"]) for row in staged.survey] == [
        (0, "stage 0"),
        (17, "stage 1"),
        (71, "stage 4"),
    ]
    assert (staged.scope["captured"], staged.scope["world_size"]) == (3, 128)


def test_no_rank_is_compared_with_one_of_another_stage(staged: Seen) -> None:
    verdicts = [(row["part"], row["rank_count"], row["verdict"]) for row in staged.stragglers]
    assert verdicts == [
        ("stage 0", 1, "not resolved"),
        ("stage 1", 1, "not resolved"),
        ("stage 4", 1, "not resolved"),
    ]
    assert "A rank's median step" not in staged.said
    assert "Of 3 ranks" not in staged.said
    assert (
        "Compared with no other, being the only one of its part: rank 0 (stage 0), 17 (stage 1), "
        "71 (stage 4)." in staged.said
    )
    # What they run at the same time is no collective of the three.
    assert {row[name] for row in staged.survey for name in ("wait_ns", "late_ns", "held_ns")} == {
        None
    }
    # Stages may take as long as they do.
    assert not staged.boundaries


def test_the_verdict_is_about_no_rank_by_default_and_says_whom_it_covers(staged: Seen) -> None:
    assert staged.document.verdict.rank == 17
    assert (
        "Of 128 ranks only 3 were captured (0, 17, 71): the verdict covers these alone; they are "
        "of 3 parts, and no rank is compared with one of another part. What the other 125 do is "
        "unknown; one of them may be slower." in staged.said
    )


def test_first_steps_of_other_stages_are_no_boundary(tmp_path: Path) -> None:
    sources = []
    for rank, length in ((0, 100 * MS), (17, 150 * MS)):
        capture = Capture(rank, 128)
        at = 0
        for number in range(3):
            at = capture.step(number, at, length, 50 * MS)
        sources.append(capture.write(tmp_path / f"{rank}.sqlite"))
    ingest(sources, tmp_path / "staged", declared={"run": PIPELINE})
    ingest(sources, tmp_path / "unstaged")
    counts = []
    for name in ("staged", "unstaged"):
        with open_run(tmp_path / name) as run:
            counts.append(len(run.sql("FROM v1.step WHERE is_boundary").to_dicts()))
    assert counts == [0, 2]


def test_unknown_stages_are_compared_with_nobody(tmp_path: Path) -> None:
    seen = Seen(tmp_path, {"run": {"pipeline_parallel": 8}})
    assert {source for _, source in seen.parts.values()} == {"unknown stage"}
    assert len({part for part, _ in seen.parts.values()}) == 3
    assert "A rank's median step" not in seen.said


def test_declared_parts_go_before_the_pipeline(tmp_path: Path) -> None:
    parts = {"edge": "0, 71", "middle": "17"}
    seen = Seen(tmp_path, {"run": PIPELINE, "parts": parts})
    assert {rank: part for rank, (part, _) in seen.parts.items()} == {
        0: "edge",
        17: "middle",
        71: "edge",
    }
    assert "edge: A rank's median step lasts 100.0 ms on every rank" in seen.said


def test_the_declared_world_counts_where_no_capture_states_one(tmp_path: Path) -> None:
    seen = Seen(tmp_path, {"run": {**PIPELINE, "world_size": 128}}, world=None)
    assert seen.parts[71][0] == "stage 4"
    assert "3 of 128" in seen.said
