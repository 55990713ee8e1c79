"""FSDP2 training of a small transformer, with annotation and faults put in, captured by Kineto.

Start it with torchrun. Several ranks may share one GPU: NCCL then takes them for several hosts.

--annotate wraps the forward of every module, the loss and the step in ranges TRUTH::..., from which
`truth.py` tells where each device op belongs. --inject puts one fault in; those named alternate*
only into even steps, so that every injected step has a clean one beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 -- torch's own custom
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

INJECTIONS = {
    "none": "nothing",
    "late_launch": "R1: the host spins before each block's forward",
    "queue_serial": "R2: all-gathers and reduce-scatters run on the compute stream",
    "skew": "R3: the last rank sleeps four times the delay before each step",
    "alternate": "R1 in even steps: the host sleeps before each block's forward",
    "alternate_skew": "R3 in even steps: the last rank sleeps before the step",
}
HEADS = 8
PROFILER_WARMUP_STEPS = 2


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    listed = "; ".join(f"{name}: {meaning}" for name, meaning in INJECTIONS.items())
    add("--inject", choices=INJECTIONS, default="none", help=listed)
    add("--delay-us", type=int, default=300, help="size of the fault")
    add("--layers", type=int, default=4)
    add("--dim", type=int, default=1024)
    add("--seq", type=int, default=1024)
    add("--batch", type=int, default=8)
    add("--vocab", type=int, default=8192)
    add("--warm", type=int, default=6, help="steps before anything is timed")
    add("--steps", type=int, default=4, help="steps to time, and to capture")
    add("--accum", type=int, default=1, help="micro-batches a step")
    add("--compile", action="store_true", help="torch.compile, a block at a time")
    add("--ac", action="store_true", help="activation checkpointing of each block")
    add("--reshard", default="true", help="reshard_after_forward: true, false or a group size")
    add("--prefetch", type=int, default=0, help="explicit prefetch of so many blocks")
    add("--fp32reduce", action="store_true", help="gradients are reduced in float32")
    add(
        "--rootless",
        choices=("", "single", "list"),
        default="",
        help="single: emb and head are groups of their own; list: emb, and [norm, head] as one",
    )
    add("--ddp", action="store_true", help="DistributedDataParallel instead of FSDP2")
    add("--backend", default="nccl")
    add("--annotate", action="store_true")
    add("--profile", default="", help="capture to PROFILE_rankN.json.gz")
    add("--nvtx", action="store_true", help="NVTX ranges and cudaProfilerStart, for Nsight Systems")
    return parser.parse_args()


class Faults:
    """The fault that was asked for, and whether the present step has it."""

    def __init__(self, options: argparse.Namespace, rank: int, world: int) -> None:
        self.kind = options.inject
        self.delay_s = options.delay_us * 1e-6
        self.is_last_rank = rank == world - 1
        self.step = 0

    @property
    def alternates_now(self) -> bool:
        return self.kind.startswith("alternate") and self.step % 2 == 0

    def before_block(self) -> None:
        if self.kind == "late_launch":
            # Spinning keeps the core, as a busy host would; sleeping hands it on.
            until = time.perf_counter() + self.delay_s
            while time.perf_counter() < until:
                pass
        elif self.kind == "alternate" and self.alternates_now:
            time.sleep(self.delay_s)

    def before_step_range(self) -> None:
        if self.kind == "alternate_skew" and self.alternates_now and self.is_last_rank:
            time.sleep(self.delay_s)

    def before_micro_batches(self) -> None:
        if self.kind == "skew" and self.is_last_rank:
            time.sleep(self.delay_s * 4)


class Annotation:
    """Ranges that say where the host really is."""

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled

    def __call__(self, name: str) -> contextlib.AbstractContextManager[Any]:
        if not self.enabled:
            return contextlib.nullcontext()
        return torch.profiler.record_function("TRUTH::" + name)


class Block(nn.Module):
    def __init__(self, width: int, faults: Faults) -> None:
        super().__init__()
        self.n1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.n2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.dn = nn.Linear(4 * width, width, bias=False)
        self.faults = faults

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.faults.before_block()
        batch, length, width = x.shape
        heads = self.qkv(self.n1(x)).view(batch, length, 3, HEADS, width // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.dn(F.gelu(self.up(self.n2(x))))


class Net(nn.Module):
    def __init__(self, options: argparse.Namespace, faults: Faults, annotate: Annotation) -> None:
        super().__init__()
        width = options.dim
        self.annotate = annotate
        self.emb = nn.Embedding(options.vocab, width)
        self.blocks = nn.ModuleList(Block(width, faults) for _ in range(options.layers))
        self.head = nn.Linear(width, options.vocab, bias=False)
        self.norm = nn.LayerNorm(width) if options.rootless == "list" else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with self.annotate("fwd emb"):
            x = self.emb(x)
        for i, block in enumerate(self.blocks):
            with self.annotate(f"fwd blocks.{i}"):
                x = block(x)
        if self.norm is not None:
            with self.annotate("fwd norm"):
                x = self.norm(x)
        with self.annotate("fwd head"):
            return self.head(x)


def share_compute_stream() -> None:
    """FSDP2's communication streams become the compute stream (a private class of torch 2.11)."""
    from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPCommContext

    own_lazy_init = FSDPCommContext.lazy_init

    def lazy_init(self: FSDPCommContext, device: torch.device) -> None:
        own_lazy_init(self, device)
        stream = torch.cuda.current_stream()
        self.all_gather_copy_in_stream = stream
        self.all_gather_stream = stream
        self.reduce_scatter_stream = stream

    FSDPCommContext.lazy_init = lazy_init


def shard(net: Net, options: argparse.Namespace) -> None:
    """Each block is a unit of FSDP2, and so is the rest."""
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16,
        reduce_dtype=torch.float32 if options.fp32reduce else torch.bfloat16,
    )
    reshard = int(options.reshard) if options.reshard.isdigit() else options.reshard != "false"
    for block in net.blocks:
        if options.compile:
            block.compile()
        fully_shard(block, mp_policy=policy, reshard_after_forward=reshard)
    if options.rootless:
        fully_shard(net.emb, mp_policy=policy, reshard_after_forward=reshard)
        last = [net.norm, net.head] if options.rootless == "list" else net.head
        fully_shard(last, mp_policy=policy, reshard_after_forward=False)
    fully_shard(net, mp_policy=policy)


def prefetch(blocks: list[FSDPModule], depth: int) -> None:
    for i, block in enumerate(blocks):
        block.set_modules_to_forward_prefetch(blocks[i + 1 : i + 1 + depth])
        block.set_modules_to_backward_prefetch(blocks[max(0, i - depth) : i][::-1])


def build(
    options: argparse.Namespace, faults: Faults, annotate: Annotation, device: torch.device
) -> nn.Module:
    torch.manual_seed(0)
    net = Net(options, faults, annotate).to(device)
    if options.ac:
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

        for i, block in enumerate(net.blocks):
            net.blocks[i] = checkpoint_wrapper(block)
    if options.inject == "queue_serial":
        share_compute_stream()
    if options.ddp:
        net = net.to(torch.bfloat16)
        if options.compile:
            net.compile()
        return nn.parallel.DistributedDataParallel(net, device_ids=[device.index])
    shard(net, options)
    if options.prefetch:
        prefetch(list(net.blocks), options.prefetch)
    return net


def step_function(
    options: argparse.Namespace,
    model: nn.Module,
    faults: Faults,
    annotate: Annotation,
    device: torch.device,
) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(0, options.vocab, (options.batch, options.seq), device=device)

    def train() -> None:
        faults.before_micro_batches()
        for micro_batch in range(options.accum):
            if options.accum > 1:
                model.set_requires_gradient_sync(micro_batch == options.accum - 1)
            with torch.profiler.record_function("forward"):
                logits = model(tokens)
                with annotate("loss"):
                    loss = F.cross_entropy(logits.float().view(-1, options.vocab), tokens.view(-1))
            with torch.profiler.record_function("backward"):
                loss.backward()
        with torch.profiler.record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad()

    def step() -> None:
        faults.before_step_range()
        with annotate("step injected" if faults.alternates_now else "step clean"):
            train()
        faults.step += 1

    return step


def timed_ms(step: Callable[[], None]) -> float:
    torch.cuda.synchronize()
    begin = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return round(1e3 * (time.perf_counter() - begin), 2)


def capture_kineto(prefix: str, rank: int, steps: int, step: Callable[[], None]) -> list[float]:
    from torch._C._profiler import _ExperimentalConfig
    from torch.profiler import ProfilerActivity, profile, schedule

    times_ms = []
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(wait=0, warmup=PROFILER_WARMUP_STEPS, active=steps),
        experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True),
        on_trace_ready=lambda p: p.export_chrome_trace(f"{prefix}_rank{rank}.json.gz"),
    ) as profiler:
        for _ in range(PROFILER_WARMUP_STEPS + steps):
            times_ms.append(timed_ms(step))
            profiler.step()
    return times_ms


def capture_nsight(steps: int, step: Callable[[], None]) -> list[float]:
    times_ms = []
    torch.cuda.cudart().cudaProfilerStart()
    with torch.autograd.profiler.emit_nvtx(record_shapes=False):
        for i in range(steps):
            torch.cuda.nvtx.range_push(f"step {i}")
            times_ms.append(timed_ms(step))
            torch.cuda.nvtx.range_pop()
    torch.cuda.cudart().cudaProfilerStop()
    return times_ms


def units(model: nn.Module) -> list[tuple[str, str]]:
    """Sharded modules, and the name that FSDP2 gives their group in its labels."""
    found = []
    for name, module in model.named_modules():
        if isinstance(module, FSDPModule):
            group = getattr(module._get_fsdp_state(), "_fsdp_param_group", None)  # noqa: SLF001 -- torch has no other way
            found.append((name, getattr(group, "_module_fqn", "no group")))
    return found


def main() -> None:
    options = parse_options()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if torch.cuda.device_count() < world:
        # NCCL refuses two ranks of one host on one device.
        os.environ["NCCL_HOSTID"] = f"fakehost{rank}"
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group(
        options.backend, device_id=device if options.backend == "nccl" else None
    )

    faults = Faults(options, rank, world)
    annotate = Annotation(enabled=options.annotate)
    model = build(options, faults, annotate, device)
    step = step_function(options, model, faults, annotate, device)
    for _ in range(options.warm):
        timed_ms(step)
    faults.step = 0
    plain_ms = [timed_ms(step) for _ in range(options.steps)]
    # The first captured step is even: an even number of warm-up steps of the profiler precedes it.
    faults.step = 0
    captured_ms = []
    if options.profile:
        captured_ms += capture_kineto(options.profile, rank, options.steps, step)
    if options.nvtx:
        captured_ms += capture_nsight(options.steps, step)
    if rank == 0:
        print("UNITS " + json.dumps(units(model)), flush=True)
    said = {key: getattr(options, key) for key in ("inject", "compile", "dim", "batch", "layers")}
    said = {"rank": rank, **said, "plain_ms": plain_ms, "prof_ms": captured_ms}
    print(json.dumps(said), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
