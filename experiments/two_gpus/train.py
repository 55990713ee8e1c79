"""FSDP2 training with one fault, run by torchrun; each rank prints its step times as a JSON line.

A fault is put into odd steps only: even ones are its clean twin, on a device that is as warm and
clocks as high. The host waits for the device at the end of each step, as a training that logs its
loss does: a host that is steps ahead would hide what is put in. Before step FIRST nothing is
recorded; from FIRST to LAST a tool may (`gapscope trace --steps`, or what starts at
cudaProfilerStart), and the times of both are printed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from itertools import count, pairwise

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional

WARM, FIRST, LAST = 6, 14, 26


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="clean")
    parser.add_argument("--late-ms", type=float, default=0, help="sleep in each block's forward")
    parser.add_argument("--skew-ms", type=float, default=0, help="last rank sleeps before the step")
    parser.add_argument("--one-stream", action="store_true", help="collectives on compute's stream")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--dim", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=2048)
    parser.add_argument("--kineto", metavar="STEM", help="profile the steps with torch.profiler")
    parser.add_argument("--profiler-api", action="store_true", help="cudaProfilerStart at FIRST")
    parser.add_argument("--annotate", action="store_true", help="import gapscope.instrument here")
    return parser.parse_args()


class Block(nn.Module):
    """A transformer block that may sleep before it launches anything."""

    late_s = 0.0

    def __init__(self, dim: int, heads: int = 16) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.up, self.down = (
            nn.Linear(dim, 4 * dim, bias=False),
            nn.Linear(4 * dim, dim, bias=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attention, then the feed-forward part."""
        if self.late_s:
            time.sleep(self.late_s)
        batch, length, dim = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, dim // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, dim))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Net(nn.Module):
    """Embedding, blocks, head."""

    def __init__(self, dim: int, layers: int, words: int = 8192) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(layers))
        self.head = nn.Linear(dim, words, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class CommunicationStreams:
    """R2: in odd steps, what FSDP2 puts on streams of its own waits in line with compute."""

    NAMES = ("all_gather_copy_in_stream", "all_gather_stream", "reduce_scatter_stream")

    def __init__(self) -> None:
        from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPCommContext

        self.own: list[tuple[FSDPCommContext, list[torch.cuda.Stream]]] = []
        original = FSDPCommContext.lazy_init

        def lazy_init(context: FSDPCommContext, device: torch.device) -> None:
            original(context, device)
            self.own.append((context, [getattr(context, name) for name in self.NAMES]))

        FSDPCommContext.lazy_init = lazy_init

    def put(self, on_compute: bool) -> None:
        """Between steps, when nothing runs on any of them."""
        for context, streams in self.own:
            for name, stream in zip(self.NAMES, streams, strict=True):
                setattr(context, name, torch.cuda.current_stream() if on_compute else stream)


@contextlib.contextmanager
def recording(given: argparse.Namespace, rank: int) -> Iterator[object]:
    """What this script itself switches on for the recorded steps."""
    if given.kineto:
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            yield profiler
        profiler.export_chrome_trace(f"{given.kineto}_rank{rank}.json.gz")
        return
    if given.profiler_api:
        torch.cuda.cudart().cudaProfilerStart()
    yield None
    if given.profiler_api:
        torch.cuda.cudart().cudaProfilerStop()


def main() -> None:
    given = arguments()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if torch.cuda.device_count() < world:
        # NCCL refuses two ranks of one host on one device; ranks of different hosts it accepts.
        os.environ["NCCL_HOSTID"] = f"host{rank}"
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    if given.annotate:
        import gapscope.instrument

        gapscope.instrument.fsdp2()
    dist.init_process_group("nccl", device_id=device)
    streams = CommunicationStreams() if given.one_stream else None
    torch.manual_seed(0)
    model = Net(given.dim, given.layers).to(device)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    for block in model.blocks:
        if given.compile:
            block.compile()
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    words = torch.randint(0, 8192, (given.batch, given.sequence), device=device)
    marks: list[torch.cuda.Event] = []
    numbers = count()

    def put_fault(is_faulty: bool) -> None:
        if given.late_ms:
            Block.late_s = given.late_ms / 1e3 * is_faulty
        if streams is not None:
            streams.put(on_compute=is_faulty)
        if given.skew_ms and is_faulty and rank == world - 1:
            time.sleep(given.skew_ms / 1e3)

    def step() -> None:
        put_fault(next(numbers) % 2 == 1)
        logits = model(words)
        functional.cross_entropy(logits.float().view(-1, 8192), words.view(-1)).backward()
        optimizer.step()
        optimizer.zero_grad()
        mark = torch.cuda.Event(enable_timing=True)
        mark.record()
        marks.append(mark)
        torch.cuda.synchronize()

    def steps(wanted: int, profiler: object = None) -> list[float]:
        marks.clear()
        for _ in range(wanted + 1):
            step()
            if profiler is not None:
                profiler.step()
        return [round(a.elapsed_time(b), 3) for a, b in pairwise(marks)]

    steps(WARM - 1)
    before = steps(FIRST - WARM - 1)
    with recording(given, rank) as profiler:
        during = steps(LAST - FIRST - 1, profiler)
    line = {"name": given.name, "rank": rank, "before_ms": before, "during_ms": during}
    # One write: ranks share the output.
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()


main()
