"""Streaming decoder of Chrome-trace JSON: typed events in chunks, never the whole tree.

A chunk is cut where one event ends and the next begins. Cuts are guessed from the text that
separated earlier events and proved by decoding: `[` + chunk + `]` is valid JSON only if the cut is
not inside an event, because a cut inside a string or an object leaves it open.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from gapscope.errors import GapscopeError
from gapscope.ingest.ahead import read_ahead
from gapscope.ingest.kineto_repair import STRUCTURE, repair

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

T = TypeVar("T")

CHUNK_BYTES = 512 << 10
# Largest stretch of text that is held while looking for the end of one event.
LIMIT_BYTES = 64 << 20
GZIP_MAGIC = b"\x1f\x8b"
_BLANK = b" \t\r\n"
_BETWEEN = b" \t\r\n,"
_UTF8_BOM = b"\xef\xbb\xbf"
# How much text is looked at to learn the separator or to guess where the array ends.
_SAMPLE_BYTES = 64 << 10
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_ARRAY_END = re.compile(rb'\}\s*(\])\s*(?=,\s*"|\}|\Z)')
_SEPARATOR = re.compile(rb"\s*,\s*\{")
_KEY_VALUE = re.compile(rb"\s*:\s*(\S)")

# Everything that decoding hostile text is known to raise.
DECODE_ERRORS = (msgspec.MsgspecError, RecursionError, ValueError, OverflowError)


@dataclass(frozen=True)
class Truncation:
    """Where the JSON stops being readable, in bytes of uncompressed text."""

    offset: int
    reason: str


class ByteSource:
    """Uncompressed bytes of a plain or gzip file in pieces of bounded size."""

    def __init__(
        self, path: Path, piece_bytes: int, progress: Callable[[int, int], None] | None = None
    ) -> None:
        self.path = path
        self.size = path.stat().st_size
        self.problem: str | None = None
        self.consumed = 0
        self._piece_bytes = max(piece_bytes, 1)
        self._progress = progress

    def pieces(self) -> Iterator[bytes]:
        """Pieces until the end; what ended a gzip stream early is left in `problem`."""
        with self.path.open("rb") as file:
            # A compressed piece grows: trace JSON compresses 10 to 20 times.
            step = max(self._piece_bytes // 8, 16)
            block = file.read(max(step, 2))
            inflate = zlib.decompressobj(wbits=31) if block[:2] == GZIP_MAGIC else None
            while block:
                self.consumed += len(block)
                if inflate is None:
                    yield block
                else:
                    try:
                        inflate = yield from self._inflate(inflate, block)
                    except zlib.error as error:
                        self.problem = f"corrupt gzip data near byte {self.consumed} ({error})"
                        return
                    if inflate is None:  # bytes that are no gzip member follow the last one
                        return
                if self._progress is not None:
                    self._progress(self.consumed, self.size)
                block = file.read(step if inflate is not None else self._piece_bytes)
            if inflate is not None and not inflate.eof:
                self.problem = f"the gzip stream is cut off at byte {self.consumed}"

    def _inflate(
        self, inflate: zlib._Decompress, block: bytes
    ) -> Generator[bytes, None, zlib._Decompress | None]:
        """Yield what the block inflates to; return the decompressor to go on with, if any."""
        while True:
            piece = inflate.decompress(block, self._piece_bytes)
            if piece:
                yield piece
            if inflate.eof:
                block = inflate.unused_data
                if not block:
                    return inflate
                if not block.startswith(GZIP_MAGIC[:1]):
                    return None
                inflate = zlib.decompressobj(wbits=31)
            elif inflate.unconsumed_tail:
                block = inflate.unconsumed_tail
            elif len(piece) < self._piece_bytes:
                return inflate
            else:
                block = b""


class EventStream(Generic[T]):
    """The elements of a trace's event array, decoded as `event_type`, in lists of one chunk each.

    After iteration: `head` and `tail` hold the other members of the object as JSON objects,
    `truncated` says where the text stopped, the counters say what the slow path had to do.
    """

    def __init__(
        self,
        source: ByteSource,
        event_type: type[T],
        chunk_bytes: int = CHUNK_BYTES,
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        self.source = source
        self.head = b"{}"
        self.tail = b"{}"
        self.truncated: Truncation | None = None
        self.repaired = 0
        self.unreadable = 0
        self.is_array = False
        self.unclosed_array = False
        self._pieces = read_ahead(source.pieces())
        self._at_end = False
        self._chunk_bytes = chunk_bytes
        self._limit_bytes = limit_bytes
        self._offset = 0  # of the first byte of the buffer, in uncompressed text
        self._separator: bytes | None = None
        # A type that is only known at run time.
        self._decode_list = msgspec.json.Decoder(list[event_type]).decode  # type: ignore[valid-type]
        self._decode_one = msgspec.json.Decoder(event_type).decode
        self._decode_lax = msgspec.json.Decoder(event_type, strict=False).decode

    def __iter__(self) -> Iterator[list[T]]:
        buffer = self._find_array()
        want = self._chunk_bytes
        while True:
            buffer = self._fill(buffer, want)
            buffer = self._skip(buffer, len(buffer) - len(buffer.lstrip(_BETWEEN)))
            step = self._last_step(buffer) if self._at_end else self._step(buffer)
            if step is None:
                if self._at_end:
                    return
                if len(buffer) >= self._limit_bytes:
                    size = f"{self._limit_bytes >> 20} MiB" if self._limit_bytes >> 20 else "limit"
                    self.truncated = Truncation(
                        self._offset, f"no event ends within the {size} after this byte"
                    )
                    return
                # Doubling keeps the rescans of one huge event linear in its size.
                want = min(max(want, len(buffer)) * 2, self._limit_bytes)
                continue
            events, end, closed = step
            if events:
                yield events
            buffer = self._skip(buffer, end)
            if closed:
                self._read_tail(buffer)
                return
            if self._at_end:
                return
            want = self._chunk_bytes

    # --- text ---------------------------------------------------------------------------------

    def _skip(self, buffer: bytes, count: int) -> bytes:
        self._offset += count
        return buffer[count:] if count else buffer

    def _fill(self, buffer: bytes, want: int) -> bytes:
        if len(buffer) >= want or self._at_end:
            return buffer
        parts = [buffer]
        size = len(buffer)
        while size < want:
            piece = next(self._pieces, None)
            if piece is None:
                self._at_end = True
                break
            parts.append(piece)
            size += len(piece)
        return b"".join(parts)

    def _find_array(self) -> bytes:
        """Read up to the opening bracket of the events; the text after it."""
        buffer = b""
        want = max(self._chunk_bytes, len(_UTF8_BOM) + 1)
        while True:
            buffer = self._fill(buffer, want)
            text = buffer.removeprefix(_UTF8_BOM).lstrip(_BLANK)
            skipped = len(buffer) - len(text)
            if text.startswith(b"["):
                self.is_array = True
                return self._skip(buffer, skipped + 1)
            if text and not text.startswith(b"{"):
                raise self._not_a_trace("does not start with { or [")
            found = _find_events_key(text)
            if found is not None:
                key, value = found
                if text[value : value + 1] != b"[":
                    raise self._not_a_trace("traceEvents is not a list")
                self.head = text[:key].rstrip(_BETWEEN) + b"}"
                return self._skip(buffer, skipped + value + 1)
            if self._at_end:
                raise self._no_events(text)
            if len(buffer) >= self._limit_bytes:
                raise self._not_a_trace(f"no traceEvents in the first {len(buffer)} bytes")
            want = min(max(want, len(buffer)) * 2, self._limit_bytes)

    def _no_events(self, text: bytes) -> GapscopeError:
        name = self.source.path.name
        if not text:
            what = self.source.problem or "is empty"
            slug = "truncated-input" if self.source.problem else "empty-input"
            return GapscopeError(slug, f"{name}: {what}", _CAPTURE_AGAIN)
        if self.source.problem:
            return GapscopeError(
                "truncated-input",
                f"{name}: {self.source.problem}, before the first event",
                _CAPTURE_AGAIN,
            )
        if looks_like_kineto(text[:_SAMPLE_BYTES]) and not text.rstrip(_BLANK).endswith(b"}"):
            return GapscopeError(
                "truncated-input",
                f"{name}: ends at byte {len(text)}, before the first event",
                _CAPTURE_AGAIN,
            )
        return self._not_a_trace("has no traceEvents")

    def _not_a_trace(self, why: str) -> GapscopeError:
        return GapscopeError(
            "not-a-kineto-trace",
            f"{self.source.path.name}: {why}",
            "give a file written by torch.profiler's export_chrome_trace",
        )

    def _read_tail(self, buffer: bytes) -> None:
        """Keep what follows the array; bounded, because only small metadata is read from it."""
        buffer = self._fill(buffer, self._limit_bytes)
        text = buffer.strip(_BETWEEN)
        if self.is_array:
            return
        if not self._at_end:
            self.truncated = Truncation(
                self._offset + len(buffer), "more metadata than is read follows the events"
            )
        elif not text.endswith(b"}"):
            self.truncated = Truncation(
                self._offset + len(buffer), "the metadata after the events is cut off"
            )
        else:
            self.tail = b"{" + text

    # --- events -------------------------------------------------------------------------------

    def _step(self, buffer: bytes) -> tuple[list[T], int, bool] | None:
        """Decode as many whole events as the buffer holds: events, bytes used, array closed."""
        if self._separator is None:
            self._learn(buffer, _scan(buffer[:_SAMPLE_BYTES])[0])
        if self._separator is not None:
            at = buffer.rfind(self._separator)
            if at >= 0:
                end = at + self._separator.index(b"}") + 1
                events, problem = self._try(buffer[:end])
                if events is not None:
                    return events, end, False
                closed = self._closed_before(buffer, problem)
                if closed is not None:
                    return closed
                # A cut inside an event only leaves brackets open; anything else may be mended.
                if "truncated" not in problem:
                    events = self._mend(buffer[:end])
                    if events is not None:
                        return events, end, False
        return self._exact_step(buffer)

    def _last_step(self, buffer: bytes) -> tuple[list[T], int, bool] | None:
        """`_step` for the end of the input, where the array should close."""
        first = max(0, len(buffer) - _SAMPLE_BYTES)
        ends = [match.start(1) for match in _ARRAY_END.finditer(buffer, first)]
        if buffer.startswith(b"]"):
            return [], 1, True
        if ends:
            events, problem = self._try(buffer[: ends[-1]])
            if events is not None:
                return events, ends[-1] + 1, True
            closed = self._closed_before(buffer, problem)
            if closed is not None:
                return closed
        step = self._exact_step(buffer)
        if step is not None and step[2]:
            return step
        end = 0 if step is None else step[1]
        rest = buffer[end:].strip(_BETWEEN)
        if self.is_array and not rest and self.source.problem is None:
            self.unclosed_array = True
        else:
            self.truncated = Truncation(
                self._offset + len(buffer),
                self.source.problem
                or ("the text stops inside an event" if rest else "the event array is not closed"),
            )
        return step

    def _closed_before(self, buffer: bytes, problem: str) -> tuple[list[T], int, bool] | None:
        """The step whose array closes just before the text at which decoding stopped."""
        trailing = _TRAILING.search(problem)
        if trailing is None:
            return None
        close = buffer.rfind(b"]", 0, int(trailing[1]) - 1)  # decoded with a bracket in front
        events, _ = self._try(buffer[:close]) if close >= 0 else (None, "")
        return None if events is None else (events, close + 1, True)

    def _exact_step(self, buffer: bytes) -> tuple[list[T], int, bool] | None:
        spans, close = _scan(buffer)
        if close is None and not spans:
            return None
        self._learn(buffer, spans)
        end = spans[-1][1] if close is None else close
        events, _ = self._try(buffer[:end])
        if events is None:
            events = self._salvage(buffer[:end], spans)
        return events, end if close is None else close + 1, close is not None

    def _try(self, body: bytes) -> tuple[list[T] | None, str]:
        """Decode a list's body: its events, or None and what msgspec says."""
        try:
            return self._decode_list(b"[" + body.rstrip(_BETWEEN) + b"]"), ""
        except DECODE_ERRORS as error:
            return None, str(error)

    def _mend(self, body: bytes) -> list[T] | None:
        """Decode a repaired list's body, if repairing it is all that it needs."""
        fixed, changes = repair(body)
        events, _ = self._try(fixed) if changes else (None, "")
        if events is not None:
            self.repaired += changes
        return events

    def _salvage(self, body: bytes, spans: list[tuple[int, int]]) -> list[T]:
        """Slow path for a chunk that does not decode: repair it, else take it event by event."""
        events = self._mend(body)
        if events is not None:
            return events
        kept = []
        for start, end in spans:
            text = body[start:end]
            event = self._one(text)
            if event is None:
                text, changes = repair(text)
                event = self._one(text) if changes else None
                self.repaired += changes if event is not None else 0
            if event is None:
                self.unreadable += 1
            else:
                kept.append(event)
        return kept

    def _one(self, text: bytes) -> T | None:
        try:
            return self._decode_one(text)
        except DECODE_ERRORS:
            pass
        try:
            return self._decode_lax(text)
        except DECODE_ERRORS:
            return None

    def _learn(self, buffer: bytes, spans: list[tuple[int, int]]) -> None:
        """Take the text between the last two whole events as the separator to look for."""
        if len(spans) < 2:
            return
        end = spans[-2][1]
        after = _SEPARATOR.match(buffer, end)
        if after is None:
            return
        body = buffer[spans[-2][0] : end - 1]
        indent = len(body) - len(body.rstrip(_BLANK))
        self._separator = buffer[end - 1 - indent : after.end()]


_CAPTURE_AGAIN = "capture the rank again, or leave the file out"
_MARKERS = re.compile(
    rb'"(?:traceEvents|schemaVersion|deviceProperties|distributedInfo|baseTimeNanoseconds'
    rb'|traceName|displayTimeUnit|trace_id)"\s*:'
)
_EVENT_MARKERS = (re.compile(rb'"ph"\s*:'), re.compile(rb'"(?:ts|cat|name)"\s*:'))


def looks_like_kineto(text: bytes) -> bool:
    """Whether the first KiB of a JSON text carry the member names of a trace."""
    text = text.removeprefix(_UTF8_BOM).lstrip(_BLANK)
    if text.startswith(b"{"):
        return _MARKERS.search(text) is not None
    return text.startswith(b"[") and all(marker.search(text) for marker in _EVENT_MARKERS)


def _scan(buffer: bytes) -> tuple[list[tuple[int, int]], int | None]:
    """Exact spans of the complete events at the start of the buffer, and where the array closes."""
    spans = []
    depth = start = 0
    for match in STRUCTURE.finditer(buffer):
        at = match.start()
        char = buffer[at]
        if char == 0x22:  # a string, never structure
            continue
        if char in (0x7B, 0x5B):  # { [
            if depth == 0:
                start = at
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                spans.append((start, at + 1))
        elif char == 0x5D:  # ]
            return spans, at
    return spans, None


def _find_events_key(text: bytes) -> tuple[int, int] | None:
    """Start of the object's own `"traceEvents"` key and of its value."""
    depth = 0
    for match in STRUCTURE.finditer(text):
        found = match[0]
        if found in (b"{", b"["):
            depth += 1
        elif found in (b"}", b"]"):
            depth -= 1
        elif depth == 1 and found == b'"traceEvents"':
            value = _KEY_VALUE.match(text, match.end())
            if value is not None:
                return match.start(), value.start(1)
    return None
