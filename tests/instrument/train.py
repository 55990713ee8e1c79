"""A small FSDP2 training on CPU, run by the tests: `train.py SCENARIO [FILE]`.

With FILE, torch.profiler watches the same steps and writes its trace there (`%d` is the rank).
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys

scenario = sys.argv[1]
if scenario == "explicit":
    # Before torch and without `gapscope trace --fsdp2`.
    import gapscope.instrument

    gapscope.instrument.fsdp2()
library = os.environ.get("NVTX_INJECTION64_PATH")
if library:
    # What libcuda does in a program that uses a GPU.
    ctypes.CDLL(library).InitializeInjection()

import torch  # noqa: E402 -- what comes before decides what importing it does
import torch.distributed as dist  # noqa: E402 -- as above
from torch import nn  # noqa: E402 -- as above
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: E402 -- as above


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(16, 16)
        self.layers = nn.ModuleList([Block() for _ in range(3)])
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def shard(model):
    options = {}
    if scenario == "int":
        options["reshard_after_forward"] = 2
    if scenario == "hybrid":
        options["mesh"] = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("copy", "shard"))
    if scenario == "list":
        options["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for layer in model.layers:
        if scenario == "compiled":
            layer.compile(fullgraph=True, backend="aot_eager")
        fully_shard(layer, **options)
    if scenario in ("list", "no-root"):
        fully_shard([model.norm, model.head], **options)
    if scenario == "no-root":
        fully_shard(model.embed, **options)
    fully_shard(model, **options)
    if scenario == "prefetch":
        first, second, third = model.layers
        first.set_modules_to_forward_prefetch([second, third])
        third.set_modules_to_backward_prefetch([second, first])


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Model()
    shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    if scenario == "whole":
        model.compile(backend="aot_eager")
        optimizer.step = torch.compile(optimizer.step, backend="aot_eager")
    batches = 2 if scenario == "microbatches" else 1

    def step():
        for batch in range(batches):
            model.set_requires_gradient_sync(batch == batches - 1)
            model(torch.randn(4, 16)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if scenario == "explicit":
            gapscope.instrument.step()

    if len(sys.argv) > 2:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            for _ in range(3):
                step()
        profile.export_chrome_trace(sys.argv[2] % dist.get_rank())
    else:
        for _ in range(3):
            step()
    total = sum(p.full_tensor().double().sum() for p in model.parameters())
    if scenario == "whole":
        counters = torch._dynamo.utils.counters
        print("graph breaks:", dict(counters["graph_break"]), counters["stats"]["unique_graphs"])
    print(f"{scenario} {total.item():.12f}")
    dist.destroy_process_group()


main()
# FSDP2's cycles hold process groups: gloo's threads would outlive the interpreter now and then, which
# aborts ("terminate called without an active exception", pytorch issue 190489).
gc.collect()
