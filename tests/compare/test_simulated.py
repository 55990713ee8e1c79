"""Simulated runs against each other: what was put in is what is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapscope.compare.build import build
from gapscope.compare.document import Comparison
from gapscope.pair import open_pair
from gapscope.simulate.run import write_run

from .pairs import part

SPEC = """
ranks = 2
steps = 4
[model]
blocks = 2
layers_per_block = 1
[compute]
forward_ms = {forward}
"""
MS = 1_000_000
SLEEP = '[[injection]]\nclass = "R3"\nplace = "sleep"\nranks = [1]\namount_ms = 5.0\n'


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("simulated")
    texts = {
        "clean": SPEC.format(forward=5.0),
        "sleep": SPEC.format(forward=5.0) + SLEEP,
        "forward": SPEC.format(forward=6.0),
    }
    found = {}
    for name, text in texts.items():
        source = directory / f"{name}.toml"
        source.write_text(text, encoding="utf-8")
        found[name] = write_run(source, directory / f"{name}.run").out
    return found


def _compare(a: Path, b: Path, rank: int | None = None) -> Comparison:
    with open_pair(a, b, rank=rank) as pair:
        return build(pair, a.name, b.name)


def test_a_rank_that_sleeps_is_late_there_and_skew_elsewhere(runs):
    document = _compare(runs["clean"], runs["sleep"], rank=1)
    assert document.run.median_interval.sign == 1
    assert document.run.mean_delta_ns == pytest.approx(5 * MS, abs=0.3 * MS)
    assert part(document, "model-rank-1", "R1 late launch").delta_ns == pytest.approx(
        5 * MS, abs=0.2 * MS
    )
    # One seed draws the same kernels, whatever is put in.
    assert part(document, "model-rank-1", "compute").delta_ns == 0
    assert part(document, "bound-rank-1", "T_lb").delta_ns == pytest.approx(0, abs=0.1 * MS)
    waiting = _compare(runs["clean"], runs["sleep"], rank=0)
    assert part(waiting, "model-rank-0", "R3 cross-rank skew").delta_ns == pytest.approx(
        5 * MS, abs=0.3 * MS
    )


def test_longer_forwards_are_compute_at_their_nodes(runs):
    document = _compare(runs["clean"], runs["forward"], rank=0)
    assert part(document, "split-rank-0", "compute").delta_ns == pytest.approx(2 * MS, rel=0.05)
    nodes = {
        line.label: line.compute_delta_ns
        for line in next(item for item in document.ledgers if item.id == "node-rank-0").lines
    }
    for node in ("FWD(blocks.0)", "FWD(blocks.1)"):
        assert nodes[node] == pytest.approx(1 * MS, rel=0.05)
    assert sum(abs(one) for name, one in nodes.items() if not name.startswith("FWD(bl")) < 0.1 * MS


@pytest.mark.parametrize("b", ["sleep", "forward"])
def test_every_ledger_closes_to_the_nanosecond(runs, b):
    document = _compare(runs["clean"], runs[b])
    names = {item.id.partition("-")[0] for item in document.ledgers}
    assert names == {"model", "bound", "split", "device", "node", "class", "kernel"}
    for item in document.ledgers:
        assert item.residual_ns == 0, item.id
        assert item.median_residual_ns in (0, None), item.id
        line = next(one for one in document.steps if one.rank == item.rank)
        assert item.total.delta_ns == pytest.approx(line.mean_delta_ns, abs=1e-6)
