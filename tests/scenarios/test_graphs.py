"""CUDA graphs: one launch, many nodes. Traced node by node or as one record, no verdict on launches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapscope.ingest.pipeline import ingest
from gapscope.run import Run, open_run

from .exports import MS, PID, Capture, global_pid

if TYPE_CHECKING:
    from collections.abc import Iterator

STEP = 20 * MS
STEPS = 4
NODES = 40
# Half of the device's time between the nodes is idle; each step's graph is launched this late.
LATE = 4 * MS


@pytest.fixture(scope="module", params=["node", "graph"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    place = tmp_path_factory.mktemp(request.param)
    capture = Capture(rank=0, world=1)
    shared = {"deviceId": 0, "contextId": 1, "globalPid": global_pid(PID), "streamId": 7}
    for step in range(STEPS):
        at = 100 * MS + step * STEP
        capture.range(f"step {step}", at, at + STEP - MS)
        launched = at + LATE
        launch = capture.called("cudaGraphLaunch_v10000", launched - 50_000, launched)
        first, last = launched + 10_000, at + STEP - 20_000
        if request.param == "graph":
            row = {**shared, "start": first, "end": last, "correlationId": launch, "graphId": 4}
            capture.graphs.append(row)
            continue
        slot = (last - first) // NODES
        for node in range(NODES):
            start = first + node * slot
            end = last if node == NODES - 1 else start + slot // 2
            capture.nodes(launch, start, end, name="sm90_gemm_bf16", node=node)
    out = ingest([capture.write(place / "rank0.sqlite")], place / "run", workers=1).out
    with open_run(out) as opened:
        yield opened


def test_only_the_launch_of_the_graph_itself_starves(run: Run) -> None:
    """The nodes after the first are issued with it, however far apart they run."""
    rows = run.sql(
        "SELECT launch_starved_ns, compute_absent_ns FROM v1.step_budget "
        "WHERE projection = 'device' AND NOT is_boundary AND step_id > 0"
    ).rows()
    assert rows
    for starved, absent in rows:
        assert abs(starved - (LATE + 20_000)) < 100_000
        assert absent >= starved


def test_no_verdict_on_launches(run: Run) -> None:
    document = run.report()
    assert "finding-launch-starved" not in [card.id for card in document.opportunities]
    tried = " ".join(tip for card in document.opportunities for tip in card.what_to_try)
    assert "CUDA graph" not in tried
    said = " ".join(s.text for s in document.section("budget").statements)
    assert "of the launch-starved time end with the launch of a CUDA graph" in said
    assert "so nothing is concluded from it about the cost of launches" in said
