"""Columns of device operations: kernels, copies and memsets, in the order of the file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gapscope.ingest.kineto_convert import (
    Columns,
    Converter,
    Counts,
    device_of,
    known,
    memory_kind,
    number,
    positive,
    queued_ns_of,
    three,
    times,
)
from gapscope.ingest.kineto_fields import DeviceArgs, Event

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapscope.ingest.kineto_collectives import Collectives

# Category (lower case) -> kind. The bare forms come from Kineto before 2022.
DEVICE_OPS = {
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
}
# `Memcpy HtoD (Pinned -> Device)`, `Memset (Device)`
_COPY_NAME = re.compile(r"Mem(?:cpy|set)\s+(?:(\w+)\s+)?\(([^)>]*?)(?:\s*->\s*([^)]*))?\)")
_COMMUNICATION = re.compile(r"nccl|rccl", re.IGNORECASE)


class DeviceOps:
    """Builds gpu_op columns; numbers the ops, because collectives point at them."""

    def __init__(
        self,
        counts: Counts,
        converter: Converter,
        names: Mapping[str | None, int],
        collectives: Collectives,
    ) -> None:
        self._counts = counts
        self._converter = converter
        self._names = names
        self._collectives = collectives
        self._next_op_id = 0
        self._communication: dict[str | None, bool] = {}
        self._copies: dict[str | None, tuple[str | None, str | None, str | None]] = {}

    def columns(self, events: list[Event]) -> Columns:
        """Columns of one chunk's device operations."""
        columns, arguments = self._converter.convert(events, DeviceArgs, self._build)
        if not columns:
            return columns
        names, kinds = columns.pop("name"), columns["kind"]
        first, self._next_op_id = self._next_op_id, self._next_op_id + len(names)
        op_ids = columns["op_id"] = list(range(first, self._next_op_id))
        columns["name_id"] = [self._names[name] for name in names]
        self._counts.device_ops += len(names)
        self._counts.devices.update(d for d in set(columns["device"]) if d is not None)
        communication = self._communication
        for name in set(names) - communication.keys():
            communication[name] = bool(name and _COMMUNICATION.search(name))
        for name, kind, args, op_id, correlation in zip(
            names, kinds, arguments, op_ids, columns["correlation_id"], strict=True
        ):
            if kind == "kernel":
                self._counts.communication_kernels += communication[name]
                if args.collective is not None:
                    self._collectives.add_kernel(args, op_id, correlation)
        return columns

    def _build(self, events: list[Event], arguments: list[DeviceArgs]) -> Columns:
        both = list(zip(events, arguments, strict=True))
        starts, ends = times(events)
        kinds = [DEVICE_OPS[(event.cat or "").lower()] for event in events]
        grids = [three(args.grid) for args in arguments]
        blocks = [three(args.block) for args in arguments]
        copies = [
            _NO_COPY if kind == "kernel" else self._copy(event.name)
            for event, kind in zip(events, kinds, strict=True)
        ]
        return {
            "kind": kinds,
            "name": [event.name for event in events],
            "device": [
                args.device if args.device is not None else device_of(event.pid)
                for event, args in both
            ],
            "context": [known(args.context) for args in arguments],
            "stream": [
                known(args.stream if args.stream is not None else number(event.tid))
                for event, args in both
            ],
            "start_ns": starts,
            "end_ns": ends,
            "correlation_id": [positive(args.correlation) for args in arguments],
            "graph_id": [positive(args.graph_id) for args in arguments],
            "graph_node_id": [positive(args.graph_node_id) for args in arguments],
            "bytes": [args.bytes for args in arguments],
            # ROCm says the kind of a copy in an argument of its own.
            "copy_kind": [
                (args.kind or copy[0]) if kind == "memcpy" else None
                for args, copy, kind in zip(arguments, copies, kinds, strict=True)
            ],
            "src_memory": [copy[1] for copy in copies],
            "dst_memory": [copy[2] for copy in copies],
            "grid_x": [grid[0] for grid in grids],
            "grid_y": [grid[1] for grid in grids],
            "grid_z": [grid[2] for grid in grids],
            "block_x": [block[0] for block in blocks],
            "block_y": [block[1] for block in blocks],
            "block_z": [block[2] for block in blocks],
            "queued_ns": [
                queued_ns_of(args.queued, start) if args.queued else None
                for args, start in zip(arguments, starts, strict=True)
            ],
        }

    def _copy(self, name: str | None) -> tuple[str | None, str | None, str | None]:
        """Copy kind, source memory and destination memory out of a copy's name."""
        parsed = self._copies.get(name)
        if parsed is None:
            match = _COPY_NAME.match(name or "")
            if match is None:
                parsed = _NO_COPY
            elif match[3] is None:
                parsed = (match[1], None, memory_kind(match[2]))
            else:
                parsed = (match[1], memory_kind(match[2]), memory_kind(match[3]))
            self._copies[name] = parsed
        return parsed


_NO_COPY = (None, None, None)
