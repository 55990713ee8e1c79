"""All-gathers by copy engines have no kernel: their copies count only where a collective's call issued them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapscope.ingest.pipeline import ingest
from gapscope.run import Run, open_run

from .exports import MS, Capture

if TYPE_CHECKING:
    from collections.abc import Iterator

PEER, INSIDE = 10, 8


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    place = tmp_path_factory.mktemp("copy_engine")
    capture = Capture(rank=0, world=2)
    capture.range("NCCL", 0, None, domain=1, kind=75)
    for step in range(3):
        at = 100 * MS + step * 20 * MS
        capture.range(f"step {step}", at - 5 * MS, at + 15 * MS)
        called = at - 4 * MS
        capture.kernel("sm90_gemm_bf16", 7, at, at + 8 * MS, issued=called)
        # 10 MB from the peer and the own part in 4 ms each, issued by ncclAllGather.
        for part, kind in enumerate((PEER, INSIDE)):
            start = at + (6 + 3 * part) * MS
            capture.copy(
                20, start, start + 3 * MS, issued=called + (part + 1) * 100_000, size=10_000_000,
                kind=kind, src=2, dst=2,
            )  # fmt: skip
        capture.range("ncclAllGather", called + 10_000, called + 250_000, domain=1)
        # The same kind of copy from outside of any collective.
        capture.copy(
            30, at + 13 * MS, at + 14 * MS, issued=called + 400_000, size=10_000_000,
            kind=PEER, src=2, dst=2,
        )  # fmt: skip
    out = ingest([capture.write(place / "rank0.sqlite")], place / "run", workers=1).out
    with open_run(out) as opened:
        yield opened


def test_only_copies_with_evidence_are_communication(run: Run) -> None:
    rows = run.sql(
        "SELECT time_class, op_class, rule_id, count(*) AS n FROM v1.device_op "
        "WHERE kind = 'memcpy' GROUP BY ALL ORDER BY ALL"
    ).rows()
    assert rows == [
        ("communication", "copy_engine", "collective_call", 6),
        ("copy", "memcpy", "kind", 3),
    ]


def test_budget_and_families_agree(run: Run) -> None:
    """Of 6 ms of all-gather 2 lie beside the gemm."""
    budget = run.sql(
        "SELECT comm_ns, exposed_comm_ns, copy_ns FROM v1.step_budget "
        "WHERE projection = 'device' AND step_id = 1"
    ).row(0)
    assert budget == (6 * MS, 4 * MS, MS)
    family = run.sql(
        "SELECT family, busy_ns, exposed_ns FROM v1.family_time "
        "WHERE projection = 'device' AND step_id = 1 AND level = 'family'"
    ).rows()
    assert family == [("copy_engine", 6 * MS, 4 * MS)]
    assert run.sql("SELECT count(*) FROM v1.audit_result WHERE failed_count > 0").item() == 0
