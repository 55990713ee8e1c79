"""One training step as the host issues it: what FSDP2's hooks (torch 2.9 to 2.12) put where.

Every rank runs the same program, so it is written down once. The order of `items` is the order in
which the host does them; the device may start an op only behind things that stand before it here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from gapscope.simulate import kernels
from gapscope.simulate.kernels import Kernels
from gapscope.simulate.spec import Compute, Model, Spec

COMPUTE, COPY_IN, GATHER, SCATTER = range(4)
# Stream numbers as PyTorch hands them out; NCCL's ordering stream carries events only.
STREAM_IDS = (7, 17, 21, 25)
ORDER_STREAM_ID = 13
ORDER = 4

MAIN, AUTOGRAD = 0, 1

BEGIN, END, LAUNCH, RECORD, WAIT, SYNC = range(6)

# What the host's time before an item depends on.
GAP_NONE, GAP_MODEL, GAP_HOOK, GAP_STEP = range(4)


@dataclass(frozen=True)
class Op:
    """A device op. `work` says what its time is: compute, engine, side or collective."""

    name: str
    kind: str
    stream: int
    work: str
    node: str
    base_ns: float
    block: int | None = None
    collective: str | None = None
    elements_in: int = 0
    elements_out: int = 0
    bytes: int | None = None
    # FWD, BWD, ...: where a pause may be put.
    phase: str = ""


@dataclass(frozen=True)
class Item:
    """A thing that the host does: opens or closes a range, or calls the device's API."""

    what: int
    thread: int
    gap: int
    text: str = ""
    # LAUNCH: number of the op. RECORD, WAIT: number of the event within the step.
    number: int = -1
    stream: int = -1
    # WAIT: torch waits for a whole stream where no data and no buffer asks for it.
    is_coarse: bool = False


@dataclass
class Program:
    """Items in host order, and the ops that they launch."""

    items: list[Item] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    event_count: int = 0


class _Issue:
    """Writes the program down; one method a thing that torch does."""

    def __init__(self, spec: Spec) -> None:
        self.program = Program()
        self.thread = MAIN
        self.model: Model = spec.model
        self.compute: Compute = spec.compute
        self.transfer = spec.transfer

    @contextmanager
    def range(self, text: str) -> Iterator[None]:
        self.program.items.append(Item(BEGIN, self.thread, GAP_NONE, text))
        yield
        self.program.items.append(Item(END, self.thread, GAP_NONE, text))

    def launch(self, op: Op, gap: int) -> None:
        number = len(self.program.ops)
        self.program.ops.append(op)
        self.program.items.append(Item(LAUNCH, self.thread, gap, number=number, stream=op.stream))

    def record(self, stream: int) -> int:
        event = self.program.event_count
        self.program.event_count += 1
        item = Item(RECORD, self.thread, GAP_NONE, number=event, stream=stream)
        self.program.items.append(item)
        return event

    def wait(self, stream: int, event: int, *, is_coarse: bool = False) -> None:
        item = Item(
            *(WAIT, self.thread, GAP_NONE), number=event, stream=stream, is_coarse=is_coarse
        )
        self.program.items.append(item)

    def wait_stream(self, stream: int, other: int, *, is_coarse: bool = False) -> None:
        self.wait(stream, self.record(other), is_coarse=is_coarse)

    def segment(
        self, what: Kernels, total_ms: float, node: str, repeat: int = 1, block: int | None = None
    ) -> None:
        """Compute kernels that share a time by their usual shares."""
        whole = sum(share for _, share in what if share is not None) * repeat
        phase = node.partition("(")[0]
        for name, share in what * repeat:
            if share is None:
                op = Op(
                    *(name, "memset", COMPUTE, "engine", node, kernels.MEMSET_NS, block),
                    bytes=4,
                    phase=phase,
                )
            else:
                length = total_ms * 1e6 * share / whole
                op = Op(name, "kernel", COMPUTE, "compute", node, length, block, phase=phase)
            self.launch(op, GAP_MODEL)


class _Group:
    """A parameter group: a block, or the root (`block` None)."""

    def __init__(self, issue: _Issue, block: int | None) -> None:
        self.block = block
        fqn = "" if block is None else f"blocks.{block}"
        self.fqn = fqn
        self.suffix = f" ({fqn})" if fqn else ""
        model, transfer = issue.model, issue.transfer
        is_root = block is None
        self.elements = model.root_elements if is_root else model.block_elements
        self.gather_ms = transfer.root_gather_ms if is_root else transfer.block_gather_ms
        self.scatter_ms = transfer.root_scatter_ms if is_root else transfer.block_scatter_ms
        # Blocks are freed after forward if so configured; the root never is (the default).
        self.reshards = model.reshard_after_forward and not is_root
        self.is_unsharded = False
        # The event behind an all-gather that was issued and not yet waited for.
        self.gathered: int | None = None
        self.reduced: int | None = None

    def node(self, kind: str, *, backward: bool = False) -> str:
        again = "'" if backward else ""
        return f"{kind}{again}({self.fqn or 'root'})"


class _Hooks(_Issue):
    """FSDP2's hooks over the groups, and the training loop around them."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self.world = spec.ranks
        self.blocks = [_Group(self, number) for number in range(spec.model.blocks)]
        self.root = _Group(self, None) if spec.model.root_parameters else None
        # comm_ctx.all_gather_state and .reduce_scatter_state
        self.copied_out: int | None = None
        self.scattered: int | None = None
        self.accumulates = False
        self.micro_batch = 0

    # -- groups ------------------------------------------------------------------------------

    def unshard(self, group: _Group, *, backward: bool) -> None:
        if group.is_unsharded or group.gathered is not None:
            return
        shard = -(-group.elements // self.world)
        with self.range(f"FSDP::all_gather{group.suffix}"):
            for part, length in (("CAST", 24_000.0), ("AGIN", 20_000.0)):
                node = group.node(part, backward=backward)
                self.launch(
                    Op(
                        *(kernels.COPY_IN, "kernel", COPY_IN, "side", node, length),
                        block=group.block,
                    ),
                    GAP_HOOK,
                )
            self.wait_stream(GATHER, COPY_IN)
            self._collective(
                "nccl:_all_gather_base",
                Op(
                    *(kernels.ALL_GATHER, "kernel", GATHER, "collective"),
                    *(group.node("AG", backward=backward), group.gather_ms * 1e6, group.block),
                    collective="all_gather",
                    elements_in=shard,
                    elements_out=shard * self.world,
                ),
            )
            group.gathered = self.record(GATHER)

    def wait_for_unshard(self, group: _Group, *, backward: bool) -> None:
        if group.gathered is None:
            return
        if not backward and self.copied_out is not None:
            self._gate_gathers(self.copied_out)
            self.copied_out = None
        with self.range(f"FSDP::all_gather_copy_out{group.suffix}"):
            self.wait(COMPUTE, group.gathered)
            self._copied(group, group.node("AGOUT", backward=backward), kernels.COPY_OUT, 22_000.0)
        event = self.record(COMPUTE)
        if backward:
            self._gate_gathers(event)
        else:
            self.copied_out = event
        group.gathered = None
        group.is_unsharded = True

    def reduce(self, group: _Group) -> None:
        """FSDPParamGroup.post_backward."""
        suffix = group.suffix
        with self.range(f"FSDP::post_backward_accumulate{suffix}"):
            if self.accumulates and not self.syncs_every:
                self._accumulate(group, COMPUTE, "compute")
        with self.range(f"FSDP::post_backward_reshard{suffix}"):
            group.is_unsharded = False
        if not self.syncs:
            return
        shard = -(-group.elements // self.world)
        with self.range(f"FSDP::post_backward_reduce{suffix}"):
            if self.scattered is not None:
                self.wait(COMPUTE, self.scattered)
            self._copied(group, group.node("RSIN"), kernels.CHUNK_CAT, 31_000.0)
            self.wait_stream(SCATTER, COMPUTE)
            self._collective(
                "nccl:_reduce_scatter_base",
                Op(
                    *(kernels.REDUCE_SCATTER, "kernel", SCATTER, "collective"),
                    *(group.node("RS"), group.scatter_ms * 1e6, group.block),
                    collective="reduce_scatter",
                    elements_in=shard * self.world,
                    elements_out=shard,
                ),
            )
            self.scattered = self.record(SCATTER)
            node = group.node("POST")
            self.launch(
                Op(kernels.POST, "kernel", SCATTER, "side", node, 44_000.0, group.block), GAP_HOOK
            )
            if self.accumulates and self.syncs_every:
                self._accumulate(group, SCATTER, "side")
            group.reduced = self.record(SCATTER)

    def _gate_gathers(self, event: int) -> None:
        self.wait(COPY_IN, event)
        self.wait(GATHER, event)

    def _collective(self, label: str, op: Op) -> None:
        with self.range(label):
            # NCCL orders the launches of one communicator through a stream of its own.
            self.wait_stream(op.stream, ORDER)
            self.launch(op, GAP_HOOK)
            self.wait_stream(ORDER, op.stream)

    def _copied(self, group: _Group, node: str, name: str, length: float) -> None:
        """A table of pointers goes to the device, then one kernel moves all parameters."""
        self.launch(
            Op(
                *(kernels.COPY, "memcpy", COMPUTE, "engine", node, kernels.COPY_NS, group.block),
                bytes=12_584,
            ),
            GAP_HOOK,
        )
        self.launch(Op(name, "kernel", COMPUTE, "engine", node, length, group.block), GAP_HOOK)

    def _accumulate(self, group: _Group, stream: int, work: str) -> None:
        node = group.node("ACC")
        op = Op(kernels.ACCUMULATE, "kernel", stream, work, node, 40_000.0, group.block)
        self.launch(op, GAP_HOOK)

    # -- passes ------------------------------------------------------------------------------

    def forward(self) -> None:
        with self.range("forward"):
            with self.range("FSDP::root_pre_forward"):
                # Meant for the optimizer: a later micro-batch would not have to wait.
                is_later = self.micro_batch > 0
                self.wait_stream(COPY_IN, COMPUTE, is_coarse=is_later)
                self.wait_stream(GATHER, COMPUTE, is_coarse=is_later)
                with self.range("FSDP::inputs_to_device"):
                    pass
            with self.range("FSDP::cast_forward_inputs"):
                pass
            if self.root is not None:
                with self.range("FSDP::pre_forward"):
                    self.unshard(self.root, backward=False)
                    self.wait_for_unshard(self.root, backward=False)
            compute = self.compute
            self.segment(kernels.EMBEDDING, compute.embedding_ms, "EMBED(root)")
            for group in self.blocks:
                self._forward_block(group)
            self.segment(kernels.HEAD, compute.head_ms, "HEAD(root)")
            if self.root is not None:
                with self.range("FSDP::post_forward"):
                    pass
            if self.copied_out is not None:
                self._gate_gathers(self.copied_out)
                self.copied_out = None

    def _forward_block(self, group: _Group) -> None:
        with self.range("FSDP::cast_forward_inputs"):
            pass
        with self.range(f"FSDP::pre_forward{group.suffix}"):
            self.unshard(group, backward=False)
            self.wait_for_unshard(group, backward=False)
        first = (group.block or 0) + 1
        for target in self.blocks[first : first + self.model.forward_prefetch]:
            with self.range(f"FSDP::forward_prefetch for {target.fqn}"):
                self.unshard(target, backward=False)
        self.segment(
            *(kernels.FORWARD, self.compute.forward_ms, group.node("FWD")),
            *(self.model.layers_per_block, group.block),
        )
        with self.range(f"FSDP::post_forward{group.suffix}"):
            if group.reshards:
                group.is_unsharded = False

    def backward(self) -> None:
        compute = self.compute
        with self.range("backward"):
            self.thread = AUTOGRAD
            self.segment(kernels.LOSS_BACKWARD, compute.loss_backward_ms, "LOSS'(root)")
            if self.root is not None:
                with self.range("FSDP::pre_backward"):
                    self._prefetch_backward(self.blocks[-1])
            self.segment(kernels.HEAD_BACKWARD, compute.head_backward_ms, "HEAD'(root)")
            for group in reversed(self.blocks):
                self._backward_block(group)
            self.segment(kernels.EMBEDDING_BACKWARD, compute.embedding_backward_ms, "EMBED'(root)")
            with self.range("FSDP::root_post_backward_callback"):
                # Token ids need no gradient, so the root's own post-backward runs only here.
                if self.root is not None:
                    self.reduce(self.root)
                if self.syncs:
                    self._finalize()
            self.thread = MAIN

    def _backward_block(self, group: _Group) -> None:
        with self.range(f"FSDP::pre_backward{group.suffix}"):
            self.unshard(group, backward=True)
            self.wait_for_unshard(group, backward=True)
            group.is_unsharded = True
            if group.block:
                self._prefetch_backward(self.blocks[group.block - 1])
        self.segment(
            *(kernels.BACKWARD, self.compute.backward_ms, group.node("BWD")),
            *(self.model.layers_per_block, group.block),
        )
        self.reduce(group)

    def _prefetch_backward(self, target: _Group) -> None:
        with self.range(f"FSDP::backward_prefetch for {target.fqn}"):
            self.unshard(target, backward=True)

    def _finalize(self) -> None:
        """Only the optimizer needs what was reduced."""
        is_early = self.micro_batch < self.model.micro_batches - 1
        groups = [*([self.root] if self.root is not None else []), *self.blocks]
        for group in groups:
            if group.reduced is not None:
                self.wait(COMPUTE, group.reduced, is_coarse=is_early)
                group.reduced = None
        if self.scattered is not None:
            self.wait(COMPUTE, self.scattered, is_coarse=is_early)
            self.scattered = None

    def step(self, *, sync: bool) -> Program:
        self.syncs_every = self.model.gradient_sync == "every"
        for number in range(self.model.micro_batches):
            self.micro_batch = number
            self.accumulates = number > 0
            self.syncs = self.syncs_every or number == self.model.micro_batches - 1
            self.forward()
            self.backward()
        with self.range("optimizer"):
            with self.range("Optimizer.step#AdamW.step"):
                self.segment(kernels.OPTIMIZER, self.compute.optimizer_ms, "OPT(root)")
            with self.range("Optimizer.zero_grad#AdamW.zero_grad"):
                pass
        if sync:
            self.program.items.append(Item(SYNC, self.thread, GAP_NONE))
        first = self.program.items[0]
        self.program.items[0] = Item(first.what, first.thread, GAP_STEP, first.text)
        return self.program


def build(spec: Spec) -> Program:
    """The program of one step; `ProfilerStep#` goes around it when it is written."""
    return _Hooks(spec).step(sync=spec.host.sync)
