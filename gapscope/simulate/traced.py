"""One simulated process as `gapscope trace --fsdp2` would have recorded it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapscope.ingest.instrument import DOMAIN, FILE
from gapscope.ingest.instrument import FORMAT as INSTRUMENT_FORMAT
from gapscope.ingest.nsys_rows import SYNC_CONTEXT, SYNC_STREAM_WAIT
from gapscope.ingest.tracer_rows import RANGE_KINDS
from gapscope.ingest.tracer_streams import FORMAT, META
from gapscope.instrument.collectives import range_text, ranks_text
from gapscope.simulate.clock import RankClock, Reading
from gapscope.simulate.program import (
    AUTOGRAD,
    BEGIN,
    END,
    LAUNCH,
    RECORD,
    STREAM_IDS,
    SYNC,
    WAIT,
    Item,
)
from gapscope.simulate.rows import (
    AUTOGRAD_TID,
    CONTEXT,
    EVENT_HANDLES,
    GROUP,
    GROUP_DESC,
    call_name,
    connections,
    device_uuid,
    host_name,
    is_driver,
    pairs,
    process_id,
    stream_id,
)
from gapscope.simulate.spec import Spec
from gapscope.simulate.streams import Stream, write_stream
from gapscope.simulate.times import Seen
from gapscope.simulate.truth import Setting

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

_PUSH_POP, _START_END = RANGE_KINDS.index("push_pop"), RANGE_KINDS.index("start_end")
_NONE32 = 0xFFFFFFFF
# CUpti_ActivityMemcpyKind and CUpti_ActivityMemoryKind.
_HTOD, _PINNED, _DEVICE = 1, 2, 3
_STEPPED = "Optimizer.step#"
_DTYPE = "bfloat16"
# What the tracer says of a pair of clocks that it read.
_PAIR_NS = 60


class TracedProcesses:
    """Writes the directories of processes; what is equal in all of them is worked out once.

    `_fixed` has the columns of a step that are the same in every step and process, `_moving` those
    that count up from step to step.
    """

    def __init__(self, spec: Spec, common: Setting, end_ns: float) -> None:
        import numpy as np

        self.spec = spec
        self._end_ns = end_ns
        self._placement = common.placement
        self._program = common.program
        self._items, self._ops = common.program.items, common.program.ops
        self._texts: dict[str, int] = {}
        api = [n for n, item in enumerate(self._items) if item.what not in (BEGIN, END)]
        self._api = np.array(api)
        self._ordinal = {item: number + 1 for number, item in enumerate(api)}
        launched = [n for n, item in enumerate(self._items) if item.what == LAUNCH]
        self._launch = dict(enumerate(launched))
        self._calls: dict[str, int] = {}
        self._fixed: dict[str, dict[str, Any]] = {}
        self._ops_of: dict[str, Ints] = {}
        self._of_ops()
        self._of_calls()
        self._of_events()
        self._of_ranges()

    def write(
        self, rank: int, above: Path, seen: list[Seen], clock: RankClock, told: list[Reading]
    ) -> None:
        """The directory of one rank."""
        directory = above / f"rank-{rank}-{process_id(rank)}"
        directory.mkdir()
        rows = self._describe(directory, rank, clock)
        for table in ("kernel", "memcpy", "memset", "api", "event", "sync", "range"):
            if len(next(iter(self._fixed[table].values()))):
                stream = Stream(directory, table)
                for step, at in enumerate(seen):
                    stream.write({**self._fixed[table], **self._moving(table, step, at)})
                stream.close()
                rows += stream.rows
        (directory / META).write_text(self._meta(rank, clock, rows), encoding="utf-8")
        record = self._instrument(rank, told)
        (directory / FILE).write_text(json.dumps(record) + "\n", encoding="utf-8")

    def _name(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts) + 1)

    def _thread(self, item: Item) -> int:
        return int(item.thread == AUTOGRAD)

    def _correlations(self, items: Any) -> Ints:
        import numpy as np

        return np.array([self._ordinal[int(item)] for item in items], np.int64)

    # -- what a step looks like ----------------------------------------------------------------

    def _of_ops(self) -> None:
        import numpy as np

        for kind in ("kernel", "memcpy", "memset"):
            chosen = [number for number, op in enumerate(self._ops) if op.kind == kind]
            ops = [self._ops[number] for number in chosen]
            count = len(chosen)
            self._ops_of[kind] = np.array(chosen, np.int64)
            columns: dict[str, Any] = {
                "correlation": self._correlations(self._launch[number] for number in chosen),
                "context": np.full(count, CONTEXT),
                "stream": np.array([stream_id(self._placement, op.stream) for op in ops], np.int64),
            }
            if kind == "kernel":
                columns["name"] = np.array([self._name(op.name) for op in ops], np.int64)
            else:
                columns["bytes"] = np.array([op.bytes or 0 for op in ops], np.int64)
            if kind == "memcpy":
                codes = {"copy_kind": _HTOD, "src_kind": _PINNED, "dst_kind": _DEVICE}
                columns |= {name: np.full(count, code) for name, code in codes.items()}
            if kind == "memset":
                columns["memory_kind"] = np.full(count, _DEVICE)
            self._fixed[kind] = columns

    def _of_calls(self) -> None:
        import numpy as np

        items = [self._items[number] for number in self._api]
        names = [call_name(self._program, item) for item in items]
        for name in names:
            self._name(name)
            self._calls.setdefault(name, len(self._calls))
        self._fixed["api"] = {
            "correlation": np.arange(1, len(items) + 1),
            "thread": np.array([self._thread(item) for item in items]),
            "call": np.array([self._calls[name] for name in names]),
        }

    def _of_events(self) -> None:
        import numpy as np

        records = [n for n in self._api if self._items[n].what == RECORD]
        waits = [n for n in self._api if self._items[n].what in (WAIT, SYNC)]
        self._waits = np.array(waits, np.int64)
        for table, chosen in (("event", records), ("sync", waits)):
            items = [self._items[number] for number in chosen]
            is_sync = np.array([item.what == SYNC for item in items], bool)
            number = np.array([item.number for item in items], np.int64)
            streams = [
                _NONE32 if item.what == SYNC else stream_id(self._placement, item.stream)
                for item in items
            ]
            self._fixed[table] = {
                "correlation": self._correlations(chosen),
                "context": np.full(len(items), CONTEXT),
                "stream": np.array(streams, np.int64),
                "event": np.where(is_sync, _NONE32, number % EVENT_HANDLES + 1),
                "sync_id": np.where(is_sync, 0, number + 1),
            }
            if table == "sync":
                kinds = np.where(is_sync, SYNC_CONTEXT, SYNC_STREAM_WAIT)
                self._fixed[table]["type"] = kinds
                self._is_sync = is_sync

    def _of_ranges(self) -> None:
        """What the instrument says: a step, FSDP2's labels, collectives, the optimizer."""
        import numpy as np

        rows: list[tuple[int, int, str, int]] = []
        for begin, end in pairs(self._items):
            text = self._items[begin].text
            if text.startswith("FSDP::"):
                rows.append((begin, end, text, _PUSH_POP))
            elif text.startswith(_STEPPED):
                rows.append((begin, end, text, _START_END))
            elif text.startswith("nccl:"):
                (op,) = (
                    self._ops[item.number] for item in self._items[begin:end] if item.what == LAUNCH
                )
                said = range_text(
                    str(op.collective), self._group(), _DTYPE, (op.elements_in, op.elements_out)
                )
                rows.append((begin, end, said, _START_END))
        self._begins = np.array([begin for begin, _, _, _ in rows], np.int64)
        self._ends = np.array([end for _, end, _, _ in rows], np.int64)
        is_collective = [text.startswith("collective ") for _, _, text, _ in rows]
        # The payload of collectives; -1 is none.
        ordinal = np.cumsum(is_collective) - 1
        self._sequence = np.where(is_collective, ordinal, -1)
        self._collectives = sum(is_collective)
        count = len(rows) + 1
        self._fixed["range"] = {
            "name": np.array([0, *(self._name(text) for _, _, text, _ in rows)], np.int64),
            "domain": np.full(count, self._name(DOMAIN)),
            "thread": np.array([0, *(self._thread(self._items[begin]) for begin in self._begins)]),
            "kind": np.array([_START_END, *(kind for _, _, _, kind in rows)]),
            "op_id": np.full(count, -1),
        }
        for step in range(self.spec.steps):
            self._name(f"step {step}")

    def _moving(self, table: str, step: int, at: Seen) -> Mapping[str, Any]:
        """The columns of a step that are its own."""
        import numpy as np

        fixed = self._fixed[table]
        if table == "range":
            sequence = np.where(self._sequence < 0, -1, self._sequence + step * self._collectives)
            name = fixed["name"].copy()
            name[0] = self._name(f"step {step}")
            return {
                "name": name,
                "start_ns": np.append(at.opened, at.call_start[self._begins]),
                "end_ns": np.append(at.closed, at.call_end[self._ends]),
                "sequence": np.append(-1, sequence),
            }
        columns = {"correlation": fixed["correlation"] + step * len(self._api)}
        if table in ("event", "sync"):
            numbered = fixed["sync_id"] + step * self._program.event_count
            columns["sync_id"] = np.where(fixed["sync_id"] == 0, 0, numbered)
        if table in self._ops_of:
            chosen = self._ops_of[table]
            columns |= {"start_ns": at.start[chosen], "end_ns": at.end[chosen]}
        elif table != "event":
            chosen = self._api if table == "api" else self._waits
            columns |= {"start_ns": at.call_start[chosen], "end_ns": at.call_end[chosen]}
        return columns

    # -- who the process is --------------------------------------------------------------------

    def _describe(self, directory: Path, rank: int, clock: RankClock) -> int:
        """Streams of names, threads, devices, streams and clocks."""
        first = len(self._texts) + 1
        own = {"simulated": first, device_uuid(rank): first + 1}
        texts = {**self._texts, **own}
        pid = process_id(rank)
        rows = write_stream(directory, "name", {"id": list(texts.values()), "text": list(texts)})
        rows += write_stream(
            directory,
            "call",
            {
                "id": list(self._calls.values()),
                "domain": [int(is_driver(name)) for name in self._calls],
                "name": [texts[name] for name in self._calls],
            },
        )
        rows += write_stream(directory, "thread", {"id": [0, 1], "tid": [pid, pid + AUTOGRAD_TID]})
        rows += write_stream(
            directory, "device", {"device": [0], "name": [first], "uuid": [first + 1]}
        )
        rows += write_stream(
            directory, "context", {"context": [CONTEXT], "null_stream": [STREAM_IDS[0]]}
        )
        count = len(STREAM_IDS)
        rows += write_stream(
            directory,
            "stream",
            {
                "context": [CONTEXT] * count,
                "stream": list(STREAM_IDS),
                "priority": [0, *[-1] * (count - 1)],
            },
        )
        if clock.base_ns is not None:
            end = _pair(clock, clock.base_ns, self._end_ns)
            rows += write_stream(directory, "clock", {name: [value] for name, value in end.items()})
        return rows

    def _meta(self, rank: int, clock: RankClock, rows: int) -> str:
        spec = self.spec
        environment = {"RANK": str(rank), "WORLD_SIZE": str(spec.ranks)}
        about = {
            # The reader knows the file by its beginning.
            "format": FORMAT,
            "simulated": True,
            "state": "finished",
            "pid": process_id(rank),
            "hostname": host_name(spec, rank),
            "rank": rank,
            "rank_variable": "RANK",
            "world_size": spec.ranks,
            "environment": {**environment, **connections(self._placement)},
            "cost": {"rows": rows},
        }
        if clock.base_ns is not None:
            about["clock_start"] = _pair(clock, clock.base_ns, 0.0)
        return json.dumps(about) + "\n"

    def _group(self) -> dict[str, Any]:
        ranks = range(self.spec.ranks)
        return {
            "name": GROUP,
            "desc": GROUP_DESC,
            "backend": "nccl",
            "size": len(ranks),
            "ranks": ranks_text(ranks),
        }

    def _instrument(self, rank: int, told: list[Reading]) -> dict[str, Any]:
        """`instrument.json`."""
        spec = self.spec
        # The SPEC gives every rank a clock of its own, so none shares a kernel.
        clock = {
            "rank": rank,
            "boot": f"simulated-{rank}",
            "reference_boot": "simulated-0",
            "samples": [
                {
                    "phase": phase,
                    "at_ns": one.at_ns,
                    "offset_ns": one.offset_ns,
                    "uncertainty_ns": one.uncertainty_ns,
                }
                for phase, one in zip(("start", "end"), told, strict=False)
                if rank
            ],
            "notes": [],
        }
        return {
            "format": INSTRUMENT_FORMAT,
            "pid": process_id(rank),
            "torch": "simulated",
            "rank": rank,
            "world_size": spec.ranks,
            "groups": [{**self._group(), "collectives": self._collectives * spec.steps}],
            "roots": [{"has_parameters": spec.model.root_parameters, "units": self._units()}],
            "steps": {"completed": spec.steps, "source": "program"},
            "clock": clock if told else {},
            "faults": {},
        }

    def _units(self) -> list[dict[str, Any]]:
        model = self.spec.model
        shared = {
            "shard_size": self.spec.ranks,
            "param_dtype": _DTYPE,
            "reduce_dtype": _DTYPE,
            "unshard_in_backward": True,
            "reduce_inputs": 1,
            "backward_prefetch": [],
        }
        blocks = [f"blocks.{number}" for number in range(model.blocks)]
        root = {
            "unit": "",
            "elements": model.root_elements,
            "reshard_after_forward": False,
            "forward_prefetch": [],
        }
        units = [
            {
                "unit": unit,
                "elements": model.block_elements,
                "reshard_after_forward": model.reshard_after_forward,
                "forward_prefetch": blocks[number + 1 : number + 1 + model.forward_prefetch],
            }
            for number, unit in enumerate(blocks)
        ]
        return [{**one, **shared} for one in ([root] if model.root_parameters else []) + units]


def _pair(clock: RankClock, base_ns: int, true_ns: float) -> dict[str, int]:
    """Both clocks of a process at one time; the Unix clock is true."""
    return {
        "monotonic_ns": int(clock.local(true_ns)),
        "realtime_ns": base_ns + clock.first_ns + round(true_ns),
        "uncertainty_ns": _PAIR_NS,
    }
