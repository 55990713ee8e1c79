"""One process of the measurement: ns a torch op, ms a training step, as one JSON line.

Run by campaign.sh once a round and mode. `kineto` profiles with torch.profiler; every other mode is
the environment's business (the tracer is loaded by CUDA, not from here).
"""

from __future__ import annotations

import contextlib
import json
import resource
import sys
import time

import torch
from torch import nn
from torch.nn import functional

MODE = sys.argv[1]
BLOCKS = 150


class Block(nn.Module):
    """A transformer block of the usual shape."""

    def __init__(self, width: int, heads: int = 16) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attention, then the feed-forward part."""
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        q, k, v = self.qkv(self.norm1(x)).view(shape).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


def profiled() -> contextlib.AbstractContextManager[object]:
    """torch.profiler in mode `kineto`, nothing in the others."""
    if MODE != "kineto":
        return contextlib.nullcontext()
    kinds = torch.profiler.ProfilerActivity
    return torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA])


def spread(times: list[float]) -> list[float]:
    """10th percentile and median: other guests of a host only ever add time."""
    ordered = sorted(times)
    return [round(ordered[len(ordered) // 10], 3), round(ordered[len(ordered) // 2], 3)]


def ns_per_op() -> list[float]:
    """Host time of an op that the device does faster, in blocks of 400."""
    x = torch.zeros(1, device="cuda")
    for _ in range(5_000):
        x.add_(1)
    torch.cuda.synchronize()
    times = []
    with profiled():
        for block in range(BLOCKS):
            start = time.perf_counter_ns()
            for _ in range(400):
                x.add_(1)
            times.append((time.perf_counter_ns() - start) / 400)
            if block % 10 == 9:
                torch.cuda.synchronize()
    return spread(times)


def ms_per_step(batch: int, steps: int) -> list[float]:
    """Steps of eight blocks; batch 1 waits for the host, batch 4 for the device."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(2048) for _ in range(8))).cuda().to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    x = torch.randn(batch, 2048, 2048, device="cuda", dtype=torch.bfloat16)
    times = []

    def step() -> None:
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        model(x).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        times.append((time.perf_counter_ns() - start) / 1e6)

    for _ in range(5):
        step()
    times.clear()
    with profiled():
        for _ in range(steps):
            step()
    return spread(times)


print(
    json.dumps(
        {
            "mode": MODE,
            "ns_per_op": ns_per_op(),
            "ms_compute_bound": ms_per_step(4, 16),
            "ms_launch_bound": ms_per_step(1, 60),
            "peak_rss_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        }
    ),
    flush=True,
)
