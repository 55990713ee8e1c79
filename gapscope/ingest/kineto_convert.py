"""Events to columns: the fast way for all of them, the patient way for those that are wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Raw

from gapscope.ingest.base import TIME_LIMIT_NS
from gapscope.ingest.kineto_fields import Event, to_ns, to_ns_column
from gapscope.ingest.kineto_json import DECODE_ERRORS
from gapscope.ingest.kineto_repair import repair

if TYPE_CHECKING:
    from collections.abc import Callable

A = TypeVar("A")
Columns = dict[str, list[Any]]

# Operations longer than this are compared with the span of the whole capture.
LONG_NS = 1_000_000_000
_UNSIGNED_MINUS_ONE = 2**32 - 1
_MISSING = (b"", b"null")


@dataclass
class Counts:
    """What quality rows are made of."""

    events: int = 0
    without_phase: int = 0
    unreadable: int = 0
    negative: int = 0
    without_duration: int = 0
    long_ops: list[int] = field(default_factory=list)
    first_start: int | None = None
    last_start: int | None = None
    skipped: Counter[str] = field(default_factory=Counter)
    device_ops: int = 0
    sync_rows: int = 0
    waits: int = 0
    resolved_waits: int = 0
    wait_calls: int = 0
    communication_kernels: int = 0
    collectives: int = 0
    collective_source: str = "none"
    host_pids: Counter[int] = field(default_factory=Counter)
    devices: set[int] = field(default_factory=set)

    def add_times(self, starts: list[int], ends: list[int | None], operations: bool) -> None:
        """Note the capture's span and what is odd about durations."""
        first, last = min(starts), max(starts)
        if self.first_start is None or first < self.first_start:
            self.first_start = first
        if self.last_start is None or last > self.last_start:
            self.last_start = last
        self.without_duration += ends.count(None)
        lengths = [end - start for start, end in zip(starts, ends, strict=True) if end is not None]
        if lengths and min(lengths) < 0:
            self.negative += sum(length < 0 for length in lengths)
        if operations and lengths and max(lengths) > LONG_NS:
            self.long_ops.extend(length for length in lengths if length > LONG_NS)


class _Decoder:
    """Arguments of one type, strict and fast or lenient and patient."""

    def __init__(self, type_: type[Any]) -> None:
        self.strict = msgspec.json.Decoder(type_).decode
        self._lax = msgspec.json.Decoder(type_, strict=False).decode
        self._empty = type_()

    def lenient(self, raw: Raw) -> Any:
        """Also accepts numbers in strings, no arguments at all and text that `repair` mends."""
        text = bytes(raw)
        if text in (b"null", b""):
            return self._empty
        try:
            return self._lax(text)
        except DECODE_ERRORS:
            return self._lax(repair(text)[0])


class Converter:
    """Decodes arguments and builds columns; counts the events that cannot be read."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._decoders: dict[type[Any], _Decoder] = {}

    def convert(
        self,
        events: list[Event],
        type_: type[A],
        build: Callable[[list[Event], list[A]], Columns],
    ) -> tuple[Columns, list[A]]:
        """Columns of the events; where one of them is wrong, of all the others, one by one."""
        if not events:
            return {}, []
        decoder = self._decoders.get(type_)
        if decoder is None:
            decoder = self._decoders[type_] = _Decoder(type_)
        strict = decoder.strict
        try:
            arguments = [strict(event.args) for event in events]
            return build(events, arguments), arguments
        except DECODE_ERRORS:
            pass
        columns: Columns = {}
        arguments = []
        for event in events:
            try:
                args = decoder.lenient(event.args)
                row = build([event], [args])
            except DECODE_ERRORS:
                self._counts.unreadable += 1
                continue
            arguments.append(args)
            for name, values in row.items():
                columns.setdefault(name, []).extend(values)
        return columns, arguments


def times(events: list[Event]) -> tuple[list[int], list[int | None]]:
    """Exact starts and ends; an end is None where the event has no duration."""
    starts = to_ns_column([event.ts for event in events])
    lengths: list[int | None]
    try:
        lengths = [*to_ns_column([event.dur for event in events])]
    except ValueError:
        lengths = [None if bytes(event.dur) in _MISSING else to_ns(event.dur) for event in events]
    ends = [
        None if length is None else start + length
        for start, length in zip(starts, lengths, strict=True)
    ]
    if starts and (min(starts) < -TIME_LIMIT_NS or max(starts) > TIME_LIMIT_NS):
        raise ValueError("start out of range")
    for end in ends:
        if end is not None and not -TIME_LIMIT_NS <= end <= TIME_LIMIT_NS:
            raise ValueError("end out of range")
    return starts, ends


def number(value: int | str | None) -> int | None:
    """A pid or tid; text that is no number raises ValueError."""
    if value is None or isinstance(value, int):
        return value
    parsed = int(value)
    if not -(2**63) <= parsed < 2**63:
        raise ValueError("id out of range")
    return parsed


def numbers(values: list[int | str | None]) -> list[int | None]:
    """Process or thread ids, in the usual case exactly as decoded."""
    if set(map(type, values)) == {int}:
        # The set of types just said so; a checker cannot follow that.
        return values  # type: ignore[return-value]
    return [number(value) for value in values]


def device_of(pid: int | str | None) -> int | None:
    """The device ordinal that Kineto writes as the pid of device events."""
    device = number(pid)
    return device if device is not None and 0 <= device < 2**31 else None


def known(value: int | None) -> int | None:
    """None for Kineto's spellings of unknown: -1, also as an unsigned 32-bit number."""
    return None if value is None or value < 0 or value == _UNSIGNED_MINUS_ONE else value


def positive(value: int | None) -> int | None:
    """None for ids of which 0 means unknown."""
    return None if value is None or value <= 0 else value


def three(sizes: list[int] | None) -> list[int | None]:
    """Grid or block sizes as x, y, z."""
    return [*(sizes or ()), None, None, None][:3]


def queued_ns_of(queued: float, start_ns: int) -> int | None:
    """Queue time in ns, if it lies on the trace's clock: some versions write another origin."""
    queued_ns = round(queued * 1000) if abs(queued) < 2**53 else 0
    return queued_ns if 0 < queued_ns <= start_ns else None


def memory_kind(text: str) -> str | None:
    """A memory kind as the canonical tables spell it."""
    word = text.strip().lower()
    return None if word in ("", "unknown", "invalid") else word
