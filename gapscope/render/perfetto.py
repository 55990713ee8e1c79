"""Chrome JSON trace of a run, for ui.perfetto.dev: a process a rank, a thread a track.

Times count from the earliest event of the run in microseconds with three decimals, so every
nanosecond is exact. Nothing is dropped: what overlaps on a stream goes to further tracks.
"""

from __future__ import annotations

import gzip
import io
import itertools
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from gapscope.render.redact import Redactor

if TYPE_CHECKING:
    from gapscope.run import Run

_BATCH_ROWS = 200_000

# Track groups from top to bottom.
_STEP_HOST, _STEP_DEVICE, _GAP, _CLASS, _NODE, _STREAM, _THREAD = range(7)

# Each query: rank as parameter, columns start_ns, end_ns, track, name, category, then arguments.
_STEPS = """
SELECT w.start_ns, w.end_ns, w.projection AS track, w.label AS name, 'step' AS category,
    w.step_id, w.source
FROM v1.step_window AS w
WHERE w.rank = ? AND w.projection IN ('host', 'device')
"""
_GAPS = """
SELECT p.start_ns, p.end_ns, 'compute absent' AS track, p.absent_class AS name, 'gap' AS category,
    p.step_id, p.gap_id, p.op_id AS ended_by_op, p.producer_op_id, p.producer_class
FROM v1.absent_piece AS p
WHERE p.rank = ? AND p.projection = '{projection}'
"""
# What the dependency model says of the same time, and the nodes as they ran.
_CLASSES = """
SELECT p.start_ns, p.end_ns, 'compute absent, by class' AS track, p.gap_class AS name,
    'class' AS category,
    p.step_id, p.sub_cause, p.rule, p.node, p.awaited_node, p.culprit_rank, p.op_id
FROM v1.gap_piece AS p
WHERE p.rank = ?
"""
_NODES = """
SELECT n.start_ns, n.end_ns,
    CASE
        WHEN n.node_kind IN ('FWD', 'BWD', 'OPT', 'AGOUT', 'RSIN') THEN 'nodes: engine'
        WHEN n.node_kind IN ('AG', 'RS', 'AR', 'COMM') THEN 'nodes: collectives'
        ELSE 'nodes: copies'
    END AS track,
    n.node AS name, 'node' AS category, n.step_id, n.unit, n.phase, n.busy_ns
FROM v1.program_node AS n
WHERE n.rank = ?
"""
_OPS = """
SELECT o.start_ns, o.end_ns, o.stream AS track, o.name, o.time_class AS category,
    o.op_id, o.kind, o.op_class, o.annotation, o.correlation_id, o.bytes, o.launch_tid,
    o.issued_ns
FROM v1.op AS o
WHERE o.rank = ?
"""
_CALLS = """
SELECT c.start_ns, c.end_ns, c.tid AS track, n.name, 'api' AS category,
    c.call_id, c.domain, c.correlation_id
FROM v1.api_call AS c
LEFT JOIN v1.name AS n ON c.rank = n.rank AND c.name_id = n.name_id
WHERE c.rank = ? AND c.end_ns >= c.start_ns
"""
_RANK_TIMES = """
SELECT r.rank, r.hostname, r.device_name, r.source_path, r.clock_base_ns,
    c.offset_ns AS clock_offset_ns,
    (
        SELECT min(t.start_ns) FROM (
            SELECT o.start_ns FROM v1.op AS o WHERE o.rank = r.rank
            UNION ALL
            SELECT c.start_ns FROM v1.api_call AS c WHERE c.rank = r.rank
            UNION ALL
            SELECT w.start_ns FROM v1.step_window AS w WHERE w.rank = r.rank
        ) AS t
    ) AS first_ns
FROM v1.rank AS r
LEFT JOIN v1.rank_clock AS c ON r.rank = c.rank
ORDER BY r.rank
"""


@dataclass
class _Track:
    """One row of the source and the threads that it needs so that nothing overlaps."""

    name: str
    order: int
    may_nest: bool
    lanes: list[tuple[int, list[int]]] = field(default_factory=list)


class _Writer:
    """Writes the events of one file; knows which threads it has named."""

    def __init__(self, file: IO[str], redactor: Redactor) -> None:
        self._file = file
        self._redactor = redactor
        self._names: dict[str, str] = {}
        self._threads = 0
        self._is_first = True

    def event(self, text: str) -> None:
        self._file.write(("\n" if self._is_first else ",\n") + text)
        self._is_first = False

    def metadata(self, name: str, pid: int, tid: int, arguments: dict[str, Any]) -> None:
        content = {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": arguments}
        self.event(json.dumps(content, separators=(",", ":")))

    def slice(self, pid: int, tid: int, ts_ns: int, dur_ns: int, words: str) -> None:
        self.event(
            f'{{"ph":"X","pid":{pid},"tid":{tid},"ts":{_us(ts_ns)},"dur":{_us(dur_ns)},{words}}}'
        )

    def quoted(self, text: str | None) -> str:
        """A JSON string; kernel names repeat, so each is redacted and escaped once."""
        known = self._names.get(text or "")
        if known is None:
            known = json.dumps(self._redactor.text(text or ""), ensure_ascii=False)
            self._names[text or ""] = known
        return known

    def thread(self, pid: int, track: _Track, start_ns: int, end_ns: int) -> int:
        """Thread for a slice: the first one of the track where it overlaps nothing."""
        for tid, open_ends in track.lanes:
            while open_ends and open_ends[-1] <= start_ns:
                open_ends.pop()
            if not open_ends or (track.may_nest and end_ns <= open_ends[-1]):
                open_ends.append(end_ns)
                return tid
        self._threads += 1
        tid = self._threads
        number = len(track.lanes)
        name = track.name if number == 0 else f"{track.name} (overlap {number})"
        track.lanes.append((tid, [end_ns]))
        self.metadata("thread_name", pid, tid, {"name": name})
        self.metadata("thread_sort_index", pid, tid, {"sort_index": track.order * 1000 + number})
        return tid


def export(run: Run, path: Path, redact: Iterable[str] = ()) -> dict[str, int]:
    """Write the trace, gzipped when `path` ends in .gz; returns the slices by kind of track."""
    ranks = run.sql(_RANK_TIMES).to_dicts()
    redactor = Redactor(redact, (row["hostname"] for row in ranks))
    shifts, clock = _shifts(ranks)
    counts = dict.fromkeys(("steps", "gaps", "classes", "nodes", "ops", "calls"), 0)
    with _opened(path) as file:
        header = {"clock": clock, "run": redactor.text(run.path.resolve().name)}
        file.write('{"displayTimeUnit":"ns","otherData":' + json.dumps(header))
        file.write(',"traceEvents":[')
        writer = _Writer(file, redactor)
        for row in ranks:
            rank = int(row["rank"])
            _name_process(writer, redactor, row)
            for kind, done in _rank_events(run, writer, rank, shifts[rank]):
                counts[kind] += done
        file.write("\n]}\n")
    return counts


def _rank_events(run: Run, writer: _Writer, rank: int, shift: int) -> Iterator[tuple[str, int]]:
    has_steps = bool(run.sql(f"SELECT count(*) FROM ({_STEPS})", [rank]).item())
    gaps = _GAPS.format(projection="device" if has_steps else "capture")
    for kind, query, label, order, may_nest in (
        ("steps", _STEPS, "steps ({})", _STEP_HOST, False),
        ("gaps", gaps, "{}", _GAP, False),
        ("classes", _CLASSES, "{}", _CLASS, False),
        ("nodes", _NODES, "{}", _NODE, False),
        ("ops", _OPS, "stream {}", _STREAM, False),
        ("calls", _CALLS, "thread {} (API)", _THREAD, True),
    ):
        tracks: dict[Any, _Track] = {}
        for columns, rows in _batches(run, query, rank):
            arguments = [json.dumps(name) for name in columns[5:]]
            for start, end, key, name, category, *values in rows:
                track = tracks.get(key)
                if track is None:
                    place = _STEP_DEVICE if key == "device" else order
                    track = tracks[key] = _Track(label.format(key), place, may_nest)
                tid = writer.thread(rank, track, start, end)
                pairs = ",".join(
                    f"{argument}:{writer.quoted(value) if isinstance(value, str) else value}"
                    for argument, value in zip(arguments, values, strict=True)
                    if value is not None
                )
                words = f'"name":{writer.quoted(name)},"cat":"{category}","args":{{{pairs}}}'
                writer.slice(rank, tid, start - shift, end - start, words)
            yield kind, len(rows)


def _batches(run: Run, query: str, rank: int) -> Iterator[tuple[list[str], list[tuple[Any, ...]]]]:
    """Rows in time order, a bounded number at a time, cut where the start time changes."""
    cuts = run.sql(
        f"SELECT DISTINCT b.start_ns FROM ("
        f"SELECT q.start_ns, row_number() OVER (ORDER BY q.start_ns) AS n FROM ({query}) AS q"
        f") AS b WHERE b.n % {_BATCH_ROWS} = 0 ORDER BY b.start_ns",
        [rank],
    )
    bounds: list[int | None] = [None, *cuts["start_ns"].to_list(), None]
    for low, high in itertools.pairwise(bounds):
        # The longer of two that start together first: the shorter nests into it.
        frame = run.sql(
            f"SELECT q.* FROM ({query}) AS q "
            f"WHERE q.start_ns >= {_MIN_NS if low is None else low} "
            f"AND q.start_ns < {_MAX_NS if high is None else high} "
            "ORDER BY q.start_ns, q.end_ns DESC, 3, 6",
            [rank],
        )
        if not frame.is_empty():
            yield frame.columns, frame.rows()


_MIN_NS, _MAX_NS = -(2**63) + 1, 2**63 - 1


def _shifts(ranks: list[dict[str, Any]]) -> tuple[dict[int, int], str]:
    """What to subtract from each rank's times, and in words which clock that makes."""
    started = [row for row in ranks if row["first_ns"] is not None]
    for column, words in (
        ("clock_offset_ns", "aligned by the run's clock offsets"),
        ("clock_base_ns", "wall clock as each source states it, not aligned"),
    ):
        if started and all(row[column] is not None for row in started):
            zero = min(row["first_ns"] + row[column] for row in started)
            return {row["rank"]: zero - (row[column] or 0) for row in ranks}, words
    words = "each rank from its own first event: ranks cannot be compared"
    return {row["rank"]: row["first_ns"] or 0 for row in ranks}, words


def _name_process(writer: _Writer, redactor: Redactor, row: dict[str, Any]) -> None:
    rank = int(row["rank"])
    writer.metadata("process_name", rank, 0, {"name": f"rank {rank}"})
    writer.metadata("process_sort_index", rank, 0, {"sort_index": rank})
    source = redactor.source(row["source_path"], rank)
    host = redactor.text(row["hostname"]) if row["hostname"] else None
    labels = [text for text in (row["device_name"], host, source) if text]
    writer.metadata("process_labels", rank, 0, {"labels": ", ".join(labels)})


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    if not path.name.split(".tmp-")[0].endswith(".gz"):
        with path.open("w", encoding="utf-8") as file:
            yield file
        return
    # No name and no time in the header: the same run gives the same bytes.
    with (
        path.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8") as file,
    ):
        yield file


def _us(ns: int) -> str:
    """Nanoseconds as microseconds with three exact decimals."""
    sign = "-" if ns < 0 else ""
    whole, rest = divmod(abs(ns), 1000)
    return f"{sign}{whole}.{rest:03d}"
