"""Write the canonical tables of one synthetic rank: N device ops with their launches.

Four streams as in FSDP2 (compute, all-gather, reduce-scatter, copies), steps of 2,000 ops, a host
thread that runs ahead. Usage: generate.py DIRECTORY N
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gapscope.ingest.writer import StagingSink, name_id_of
from gapscope.schema.tables import TABLES

CHUNK = 1_000_000
OPS_PER_STEP = 2_000
KERNELS = (
    "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NNN",
    "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<float>>",
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "Memcpy DtoD (Device -> Device)",
)


def main(directory: Path, count: int) -> None:
    """Write `data/<table>/rank=0/data.parquet` for every canonical table."""
    random = np.random.default_rng(7)
    sink = StagingSink(directory / "staging")
    launch_name = sink.intern("cudaLaunchKernel")
    names = np.array([sink.intern(name) for name in KERNELS])
    step_names = []
    device_ns, host_ns = 1_000_000, 0
    steps: list[tuple[int, int]] = []
    for first in range(0, count, CHUNK):
        n = min(CHUNK, count - first)
        which = random.choice(5, n, p=[0.45, 0.45, 0.04, 0.04, 0.02])
        stream = np.array([7, 7, 21, 25, 17])[which]
        duration = np.where(which < 2, random.integers(2_000, 40_000, n), 200_000)
        gap = np.where(random.random(n) < 0.3, random.integers(500, 8_000, n), 0)
        start = device_ns + np.cumsum(np.where(which < 2, duration + gap, 1_000)) - duration
        end = start + duration
        call = np.minimum(host_ns + np.arange(n) * 9_000, start - 3_000)
        call = np.maximum.accumulate(call)
        ids = np.arange(first, first + n)
        sink.write(
            "gpu_op",
            {
                "op_id": ids,
                "kind": pa.array(np.where(which == 4, "memcpy", "kernel")),
                "name_id": names[which],
                "process_id": np.ones(n, np.int64),
                "device": np.zeros(n, np.int32),
                "context": np.ones(n, np.int64),
                "stream": stream,
                "start_ns": start,
                "end_ns": end,
                "correlation_id": ids + 1,
            },
        )
        sink.write(
            "api_call",
            {
                "call_id": ids,
                "process_id": np.ones(n, np.int64),
                "tid": np.ones(n, np.int64),
                "domain": pa.array(["runtime"] * n),
                "name_id": np.full(n, launch_name),
                "start_ns": call,
                "end_ns": call + 4_000,
                "correlation_id": ids + 1,
            },
        )
        steps += [
            (int(call[at]), int(call[min(at + OPS_PER_STEP, n) - 1]) + 5_000)
            for at in range(0, n, OPS_PER_STEP)
        ]
        device_ns, host_ns = int(end.max()), int(call[-1]) + 9_000
    for number, (begin, finish) in enumerate(steps):
        step_names.append(sink.intern(f"step {number}"))
        steps[number] = (begin, max(begin + 1, finish))
    sink.write(
        "range",
        {
            "process_id": [1] * len(steps),
            "tid": [1] * len(steps),
            "domain": ["default"] * len(steps),
            "kind": ["push_pop"] * len(steps),
            "name_id": step_names,
            "start_ns": [begin for begin, _ in steps],
            "end_ns": [finish for _, finish in steps],
        },
    )
    sink.write("rank", {"process_id": [1], "device": [0], "rank_source": ["RANK"]})
    sink.close()
    assert name_id_of(KERNELS[0]) == names[0]
    for table in TABLES.values():
        target = directory / "data" / table.name / "rank=0"
        target.mkdir(parents=True)
        staged = directory / "staging" / f"{table.name}.parquet"
        if staged.exists():
            staged.rename(target / "data.parquet")
        else:
            pq.write_table(table.arrow_schema().empty_table(), target / "data.parquet")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(float(sys.argv[2])))
