"""Real captures against each other: an injected delay, a setting, other work."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from gapscope.compare.build import build
from gapscope.compare.document import Comparison
from gapscope.ingest.pipeline import ingest
from gapscope.pair import open_pair

from .pairs import part, verdicts

MS = 1_000_000


@pytest.fixture(scope="module")
def captured(shared_data: Path, tmp_path_factory: pytest.TempPathFactory):
    """`captured("kineto", "p_base")`: that capture as a run, made once."""
    directory = tmp_path_factory.mktemp("real")
    made: dict[str, Path] = {}

    def run(tool: str, name: str) -> Path:
        if name not in made:
            found = sorted((shared_data / "data" / "h200" / tool).glob(f"{name}_rank*.gz"))
            if not found:
                pytest.skip(f"the captures {name} are not in ../shared")
            if tool == "nsys":
                found = [_unpacked(one, directory) for one in found]
            made[name] = ingest(found, directory / f"{name}.run", workers=1).out
        return made[name]

    return run


def _unpacked(source: Path, directory: Path) -> Path:
    target = directory / source.name.removesuffix(".gz")
    with gzip.open(source) as packed, target.open("wb") as file:
        shutil.copyfileobj(packed, file)
    return target


def _compare(a: Path, b: Path, rank: int | None = None) -> Comparison:
    with open_pair(a, b, rank=rank) as pair:
        return build(pair, a.name, b.name)


@pytest.mark.parametrize(
    ("tool", "a", "b"), [("nsys", "n_base", "n_late12000"), ("kineto", "p_base", "p_late12000")]
)
def test_late_launches_are_found_and_every_ledger_closes(captured, tool, a, b):
    document = _compare(captured(tool, a), captured(tool, b))
    assert document.is_comparable
    assert not document.is_confounded
    assert document.run.median_interval.sign == 1
    assert 40 * MS < document.run.median_delta_ns < 46 * MS
    assert len(document.ledgers) == 11
    for item in document.ledgers:
        # Asked for: below 0.5 ms. By construction: nothing.
        assert abs(item.residual_ns) == 0, item.id
        assert (item.median_residual_ns or 0) == 0, item.id
    late = part(document, f"model-rank-{document.shown_rank}", "R1 late launch")
    assert 36 * MS < late.delta_ns < 50 * MS
    assert late.interval.sign == 1
    shown = next(item for item in document.ledgers if item.id.startswith("node"))
    # The pauses were put into the forwards of blocks.
    assert all(line.label.startswith("FWD(blocks.") for line in shown.lines[:4])


def test_more_hardware_queues_are_found_as_queue_serialization(captured):
    document = _compare(captured("kineto", "p_base"), captured("kineto", "q8_base"))
    assert document.is_comparable
    assert -39 * MS < document.run.median_delta_ns < -36 * MS
    queue = part(document, f"model-rank-{document.shown_rank}", "R2 queue serialization")
    assert -40 * MS < queue.delta_ns < -36 * MS
    # Kineto does not record the variable that was set; that is said.
    assert verdicts(document)["settings"] == "unknown"
    said = " ".join(statement.text for statement in document.statements)
    assert "Streams that share a hardware queue differ, as inferred from the traces. " in said


@pytest.mark.parametrize(
    ("b", "item"), [("ddp", "collectives a unit of work"), ("p_four", "world size")]
)
def test_other_work_is_not_compared(captured, b, item):
    document = _compare(captured("kineto", "p_base"), captured("kineto", b))
    assert not document.is_comparable
    assert verdicts(document)[item] == "forbids"


def test_two_tools_are_compared_and_blamed_for_nothing(captured):
    document = _compare(captured("nsys", "n_base"), captured("kineto", "p_base"))
    assert document.is_comparable
    assert document.is_confounded
    assert verdicts(document)["source"] == "limits"
    # Their spellings differ, their counts do not.
    assert "kernel classes" not in verdicts(document)
    assert not any(item.id.startswith("kernel") for item in document.ledgers)
    assert any(item.id.startswith("class") for item in document.ledgers)
