"""Whole-process time and peak memory of an ingest, paired with what its reader could at best cost.

Each repetition runs every command once, in turn, as a cold process; ratios are of the medians of
one run. Usage:

    run.py kineto TRACE.json.gz [REPETITIONS]   against gunzip + json.load of the same file
    run.py nsys EXPORT.sqlite [REPETITIONS]     against ADBC reading the same tables into Arrow
    run.py growth TRACE.json.gz [REPETITIONS]   ten copies of the events against one
    run.py help - [REPETITIONS]                 `gapscope --help` against a bare interpreter
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

JSON_LOAD = "import gzip, json, sys; json.load(gzip.open(sys.argv[1]))"
# The columns that gapscope keeps of the tables that hold nearly all rows.
ADBC = """
import sys
import adbc_driver_sqlite.dbapi as adbc
place = "deviceId, contextId, streamId, correlationId, globalPid"
tables = {
    "CUPTI_ACTIVITY_KIND_KERNEL": f"start, end, {place}, demangledName, gridX, gridY, gridZ, "
    "blockX, blockY, blockZ, graphNodeId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"start, end, {place}, bytes, copyKind, srcKind, dstKind",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"start, end, {place}, bytes",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, globalTid, correlationId, nameId, returnValue",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"start, end, {place}, syncType, eventId, eventSyncId",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": f"{place}, eventId, eventSyncId",
    "NVTX_EVENTS": "start, end, eventType, rangeId, text, globalTid, endGlobalTid, textId, "
    "domainId",
    "StringIds": "id, value",
}
with adbc.connect("file:" + sys.argv[1] + "?mode=ro&immutable=1") as con, con.cursor() as cursor:
    for table, columns in tables.items():
        cursor.execute(f"SELECT {columns} FROM {table}")
        for batch in cursor.fetch_record_batch():
            pass
"""


def measure(command: list[str]) -> tuple[float, float]:
    """Seconds and peak resident MiB of one process."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    if status != 0:
        raise SystemExit(f"failed: {command}")
    return seconds, usage.ru_maxrss / 1024


def compare(commands: dict[str, list[str]], repetitions: int, scratch: Path) -> None:
    """Print seconds (min, median, max), peak MiB and the ratio to the first command."""
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    peak: dict[str, float] = dict.fromkeys(commands, 0.0)
    for _ in range(repetitions):
        for name, command in commands.items():
            shutil.rmtree(scratch / "run", ignore_errors=True)
            took, mib = measure(command)
            seconds[name].append(took)
            peak[name] = max(peak[name], mib)
    base = statistics.median(next(iter(seconds.values())))
    rows = {
        name: {
            "seconds": [round(v, 2) for v in (min(s), statistics.median(s), max(s))],
            "peak_mib": round(peak[name]),
            "ratio": round(statistics.median(s) / base, 2),
        }
        for name, s in seconds.items()
    }
    print(json.dumps(rows, indent=1))


def ten_times(trace: Path, target: Path) -> None:
    """The trace with its events ten times over, one capture length apart."""
    with gzip.open(trace) as file:
        content = json.load(file)
    events = content["traceEvents"]
    times = [e["ts"] for e in events if e.get("ph") == "X"]
    length = max(times) - min(times) + 1e6
    ids = 1 + max(
        (e["args"]["correlation"] for e in events if "correlation" in (e.get("args") or {})),
        default=0,
    )
    repeated = []
    for copy in range(10):
        for event in events:
            shifted = dict(event)
            if isinstance(event.get("ts"), (int, float)):
                shifted["ts"] = round(event["ts"] + copy * length, 3)
            if "correlation" in (event.get("args") or {}):
                shifted["args"] = {
                    **event["args"],
                    "correlation": event["args"]["correlation"] + copy * ids,
                }
            repeated.append(shifted)
    content["traceEvents"] = repeated
    with gzip.open(target, "wt", compresslevel=6) as file:
        json.dump(content, file, indent=1)


def main() -> None:
    """Run one comparison."""
    kind, source = sys.argv[1], Path(sys.argv[2])
    repetitions = int(sys.argv[3]) if len(sys.argv) > 3 else 7
    scratch = Path(tempfile.mkdtemp())
    ingest = [sys.executable, "-m", "gapscope", "ingest", "--quiet", "-o", str(scratch / "run")]
    try:
        if kind == "kineto":
            commands = {
                "gunzip + json.load": [sys.executable, "-c", JSON_LOAD, str(source)],
                "gapscope ingest": [*ingest, str(source)],
            }
        elif kind == "nsys":
            commands = {
                "adbc": [sys.executable, "-c", ADBC, str(source)],
                "gapscope ingest": [*ingest, str(source)],
            }
        elif kind == "help":
            commands = {
                "python": [sys.executable, "-c", "pass"],
                "gapscope --help": [sys.executable, "-m", "gapscope", "--help"],
            }
        else:
            ten_times(source, scratch / "ten.json.gz")
            commands = {
                "once": [*ingest, str(source)],
                "ten times": [*ingest, str(scratch / "ten.json.gz")],
            }
        compare(commands, repetitions, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
