"""NCCL 38 % and copies 20 % of the summed kernel time, both hidden: no bottleneck, no number for a gain."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from gapscope.ingest.pipeline import ingest
from gapscope.render import markdown, text
from gapscope.run import Run, open_run

from .exports import MS, Capture

if TYPE_CHECKING:
    from collections.abc import Iterator

STEP = 42 * MS
STEPS = 5
NCCL, COPIES = 38 * MS, 20 * MS
# The host is this far ahead of the device.
AHEAD = 5 * MS


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    place = tmp_path_factory.mktemp("volume")
    capture = Capture(rank=0, world=8)
    for step in range(STEPS):
        at = 100 * MS + step * STEP
        issued = at - AHEAD
        capture.range(f"step {step}", issued, issued + STEP)
        # 42 of compute, 38 of NCCL beside it, 20 of copies beside both: 100 together.
        for half in range(2):
            start = at + half * STEP // 2
            capture.kernel(
                "sm90_gemm_bf16",
                7,
                start,
                start + STEP // 2,
                issued=issued + (2 * half + 1) * 9_000,
            )
        capture.kernel(
            "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            20, at + 2 * MS, at + 2 * MS + NCCL, issued=issued + 50_000,
        )  # fmt: skip
        for part in range(4):
            start = at + MS + part * 8 * MS
            capture.copy(30, start, start + COPIES // 4, issued=issued + 70_000, size=250_000_000)
        # What the next step computes waits for the gather, which is long done by then.
        capture.wait(7, 20, issued + 90_000)
    out = ingest([capture.write(place / "rank0.sqlite")], place / "run", workers=1).out
    with open_run(out) as opened:
        yield opened


def test_shares_are_those_of_the_scenario(run: Run) -> None:
    rows = run.sql(
        "SELECT op_class, volume_share, busy_share FROM v1.class_time "
        "WHERE projection = 'device' AND step_id = 2 ORDER BY op_class"
    ).rows()
    assert [(name, round(volume, 3)) for name, volume, _ in rows] == [
        ("gemm", 0.42),
        ("memcpy", 0.2),
        ("nccl", 0.38),
    ]
    assert rows[0][2] == 1.0


def test_all_of_it_is_overlapped_and_blocks_nothing(run: Run) -> None:
    total, nccl = run.sql(
        "SELECT level, volume_ns, exposed_ns, blocking_ns, overlapped_ns FROM v1.family_time "
        "WHERE projection = 'device' AND step_id = 2 AND level IN ('total', 'family') "
        "ORDER BY level DESC"
    ).rows()
    assert total[1:] == nccl[1:] == (NCCL, 0, 0, NCCL)
    (copies,) = run.sql(
        "SELECT busy_ns, blocking_ns, round(gb_s), peak_gb_s, limits FROM v1.copy_time "
        "WHERE projection = 'device' AND step_id = 2 AND level = 'direction'"
    ).rows()
    assert copies == (COPIES, 0, 50, 63, None)


def test_neither_is_called_a_bottleneck_and_no_gain_is_named(run: Run) -> None:
    document = run.report()
    # The one card is a question for another tool: it names no gain, and neither of the two.
    assert [card.id for card in document.opportunities] == ["finding-kernels"]
    card = document.opportunities[0]
    assert card.ceiling is None
    assert card.modelled is None
    assert not re.search(r"(?i)nccl|\bcop(y|ies)\b", f"{card.title} {card.mechanism.text}")
    assert not document.verdict.is_withheld
    said = " ".join(s.text for section in document.sections for s in section.statements)
    # Volume may be told: as volume.
    assert "volume 38.00 ms, exposed 0 ns, blocking 0 ns, overlapped 38.00 ms" in said
    assert said.count("nothing here shows that") == 2
    assert "exposed is an upper bound" in said
    assert "No finding" in said
    for word in ("bottleneck", "throughput", "speed up", "Copy-bound", "could be got back"):
        assert word not in said, word
    for rendered in (text.render(document), markdown.render(document)):
        assert "throughput" not in rendered
        assert "Copy-bound" not in rendered
