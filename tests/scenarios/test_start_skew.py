"""Two nodes, EP=16, ranks 0 and 8: a window longer by 102 ms whose end is its peer's is start skew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapscope.ingest.pipeline import ingest
from gapscope.run import Run, open_run

from .exports import MS, Capture

if TYPE_CHECKING:
    from collections.abc import Iterator

STEP = 2000 * MS
STEPS = 4
LEAD = 102 * MS
NOTIFY, DISPATCH, COMBINE = (
    "void deep_ep::internode::notify_dispatch<false, 2>(int const*, int*)",
    "void deep_ep::internode::dispatch<false, 2, false, 8192>(int4*, float*)",
    "void deep_ep::internode::combine<false, 2, __nv_bfloat16>(int4*, float*)",
)
LAYOUT = "void deep_ep::layout::get_dispatch_layout<256, 4, 8>(long const*, int*)"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "sm90_gemm_bf16"


def _capture(rank: int, host: str, clock: int, utc_ns: int, jitter: int, lead: int) -> Capture:
    """One rank; `clock` is added to all its times, `lead` is how much earlier its first step begins."""
    made = Capture(rank, world=16, host=host, uuid=f"gpu-{rank}", utc_ns=utc_ns)
    count = 0
    for step in range(STEPS):
        at = clock + 1000 * MS + step * STEP
        begin = at - (lead if step == 0 else 0)
        issued = begin
        made.range(f"step {step}", begin, at + STEP - 10 * MS)

        def run(
            name: str,
            stream: int,
            start: int,
            length: int,
            at: int = at,
            first: int = begin,
        ) -> None:
            nonlocal issued, count
            issued += 20_000
            count += 1
            own = start or first - at
            # Ends of one op differ between the nodes by up to 90 us, now one way, now the other.
            end = at + start + length + (jitter if count % 2 else 0)
            made.kernel(name, stream, at + own + 30_000 * (not start), end, issued=issued)

        # The first op begins with the step; it is the notification that waits for the other node.
        run(NOTIFY, 40, 0, 5 * MS)
        for layer in range(4):
            t = 10 * MS + layer * 450 * MS
            run(LAYOUT, 40, t, 2 * MS)
            run(DISPATCH, 40, t + 5 * MS, 60 * MS)
            run(GEMM, 7, t + 70 * MS, 290 * MS)
            run(COMBINE, 40, t + 365 * MS, 60 * MS)
        run(NCCL, 20, 1815 * MS, 100 * MS)
        run(GEMM, 7, 1920 * MS, 79 * MS)
    return made


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    place = tmp_path_factory.mktemp("skew")
    # The clock of the other node is off by seconds, its stated time by 3 ms, its ends by up to 0.1 ms.
    files = [
        _capture(0, "node0", 0, 10**18, 0, LEAD).write(place / "a.sqlite"),
        _capture(8, "node1", -700 * MS, 10**18 + 703 * MS, 90_000, 0).write(place / "b.sqlite"),
    ]
    out = ingest(files, place / "run", workers=1).out
    with open_run(out) as opened:
        yield opened


def test_ends_are_aligned_within_a_tenth_of_a_millisecond(run: Run) -> None:
    (spread,) = run.sql(
        "SELECT max(e) - min(e) FROM (SELECT s.device_end_ns + c.offset_ns AS e FROM v1.step AS s "
        "INNER JOIN v1.rank_clock AS c ON s.rank = c.rank WHERE s.step_id = 0)"
    ).row(0)
    assert 0 < spread <= 100_000
    assert set(run.sql("SELECT method FROM v1.rank_clock")["method"]) == {"matched ends"}


def test_the_longer_window_is_start_skew(run: Run) -> None:
    rows = run.sql(
        "SELECT rank, step_id, longer_ns, end_lag_ns FROM v1.window_skew WHERE skew = 'start skew'"
    ).rows()
    ((rank, step, longer, lag),) = rows
    assert (rank, step) == (0, 0)
    assert abs(longer - LEAD) <= 200_000
    assert abs(lag) <= 100_000
    others = run.sql("SELECT DISTINCT skew FROM v1.window_skew WHERE step_id > 0 OR rank = 8")
    assert others["skew"].to_list() == ["none"]


def test_neither_rank_is_a_straggler(run: Run) -> None:
    """Not the one whose window is longer, nor the one that the other waited for at its begin."""
    assert run.sql("SELECT laggard_rank FROM v1.step_laggard WHERE laggard_rank >= 0").height == 0
    assert run.sql("SELECT verdict FROM v1.part_straggler").rows() == [("none",)]
    said = " ".join(s.text for s in run.report().section("ranks").statements)
    assert "Start skew, which is no straggling, in 1 step of single ranks" in said
    assert "2 of 16 ranks were captured, and verdicts cover these only" in said
    assert "Repeated or chance" not in said


def test_dispatcher_kernels_stand_beside_nccl(run: Run) -> None:
    rows = run.sql(
        "SELECT family, round(volume_ns / 1e6) AS ms FROM v1.family_time WHERE rank = 0 "
        "AND projection = 'device' AND step_id = 2 AND level = 'family' ORDER BY family"
    ).rows()
    # 4 x (60 + 60 + 2) + 5 of DeepEP.
    assert rows == [("deep_ep", 493), ("nccl", 100)]
    roles = run.sql(
        "SELECT role, round(volume_ns / 1e6) AS ms FROM v1.family_time WHERE rank = 0 "
        "AND projection = 'device' AND step_id = 2 AND level = 'role' AND family = 'deep_ep'"
    ).rows()
    assert dict(roles) == {"transport": 480, "synchronization": 5, "routing": 8}
    said = " ".join(s.text for s in run.report().section("ranks").statements)
    assert "NCCL alone: volume 100.0 ms" in said
    assert "Beside it: deep_ep volume 493" in said
    assert "dispatchers spend in routing 8.0" in said
