"""One row a collective, from its kernel's arguments or from c10d's record_param_comms op."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapscope.ingest.kineto_convert import Columns, Converter, Counts, known, numbers, times
from gapscope.ingest.kineto_fields import CollectiveArgs, Event, collective_type, is_collective

if TYPE_CHECKING:
    from gapscope.ingest.base import Sink


@dataclass
class _Call:
    """A collective: what c10d says, the host call and the device op, as far as known."""

    args: CollectiveArgs
    tid: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    correlation_id: int | None = None
    op_id: int | None = None

    @property
    def key(self) -> tuple[int | None, str | None]:
        """What a kernel and its host call have in common."""
        return self.args.external_id, self.args.collective


class Collectives:
    """Gathers both descriptions of every collective; `write` joins them without counting twice."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        # Events that cannot be read are counted by the range that they also are.
        self._converter = Converter(Counts())
        self._kernels: list[_Call] = []
        self._calls: list[_Call] = []

    def add_kernel(self, args: CollectiveArgs, op_id: int, correlation_id: int | None) -> None:
        """Add a kernel that carries collective arguments."""
        self._kernels.append(_Call(args, correlation_id=correlation_id, op_id=op_id))

    def add_calls(self, events: list[Event]) -> None:
        """Add record_param_comms ops."""

        def build(events: list[Event], _arguments: list[CollectiveArgs]) -> Columns:
            starts, ends = times(events)
            return {"tid": numbers([e.tid for e in events]), "start": starts, "end": ends}

        columns, arguments = self._converter.convert(events, CollectiveArgs, build)
        for index, args in enumerate(arguments):
            if args.collective is not None and is_collective(args.collective):
                self._calls.append(
                    _Call(
                        args,
                        columns["tid"][index],
                        columns["start"][index],
                        columns["end"][index],
                    )
                )

    def write(self, sink: Sink) -> None:
        """One row a collective: of the kernels if any carries arguments, else of the host calls."""
        rows = self._kernels or self._calls
        self._counts.collectives = len(rows)
        if not rows:
            return
        if self._kernels:
            self._counts.collective_source = "kernel arguments"
            self._add_host_side()
        else:
            self._counts.collective_source = "record_param_comms"
        types = [collective_type(row.args.collective or "") for row in rows]
        sink.write(
            "collective",
            {
                "group_name": [row.args.group_name for row in rows],
                "group_desc": [row.args.group_desc for row in rows],
                "seq": [known(row.args.seq) for row in rows],
                "type": types,
                "dtype": [row.args.dtype for row in rows],
                "elements_in": [row.args.elements_in for row in rows],
                "elements_out": [row.args.elements_out for row in rows],
                "group_size": [row.args.group_size for row in rows],
                "group_ranks": [row.args.group_ranks for row in rows],
                "peer_rank": [_peer(row, type_) for row, type_ in zip(rows, types, strict=True)],
                "tid": [row.tid for row in rows],
                "start_ns": [row.start_ns for row in rows],
                "end_ns": [row.end_ns for row in rows],
                "correlation_id": [row.correlation_id for row in rows],
                "op_id": [row.op_id for row in rows],
            },
        )

    def _add_host_side(self) -> None:
        """Give kernels their host call where exactly one of each has the external id."""
        kernels = Counter(row.key for row in self._kernels)
        calls = Counter(row.key for row in self._calls)
        by_key = {row.key: row for row in self._calls if row.args.external_id is not None}
        for row in self._kernels:
            call = by_key.get(row.key)
            if call is not None and kernels[row.key] == calls[row.key] == 1:
                row.tid, row.start_ns, row.end_ns = call.tid, call.start_ns, call.end_ns


def _peer(row: _Call, type_: str) -> int | None:
    if type_ == "send":
        return known(row.args.destination_rank)
    return known(row.args.source_rank) if type_ == "recv" else None
