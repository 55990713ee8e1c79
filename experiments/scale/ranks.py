"""What many ranks cost, from the tracer's streams to the report: time, memory and disk a command.

Usage: python experiments/scale/ranks.py WORK RANKS...
For each number of ranks: simulates a trace of 10 steps of 3,008 ops with a late rank, ingests it,
reports on it and surveys it, and prints a table of the commands and what twice the ranks cost.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

SPEC = """\
ranks = {ranks}
steps = 10
[model]
blocks = 16
layers_per_block = 4
[clock]
offset_us = 5_000.0
exchange_us = 20.0
[[injection]]
class = "R3"
place = "sleep"
ranks = [{late}]
steps = [2, 5, 7]
amount_ms = 10.0
"""
_SAMPLE_S = 0.25


@dataclass(frozen=True)
class Cost:
    """Of a command and all processes that it started."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def measured(*arguments: str) -> Cost:
    """Run a gapscope command; memory is the sum over its processes, shared pages counted once."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "gapscope", *arguments], stdout=subprocess.DEVNULL
    )
    peak_kib = 0
    ended = threading.Event()

    def watch() -> None:
        nonlocal peak_kib
        while not ended.wait(_SAMPLE_S):
            peak_kib = max(peak_kib, sum(map(_own_kib, _tree(process.pid))))

    watcher = threading.Thread(target=watch)
    watcher.start()
    # The usage of a process that was waited for includes that of those which it waited for.
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - began
    ended.set()
    watcher.join()
    if process.returncode:
        raise SystemExit(f"gapscope {' '.join(arguments)}: exit code {process.returncode}")
    return Cost(wall, usage.ru_utime + usage.ru_stime, peak_kib / 1024)


def _tree(root: int) -> list[int]:
    """The process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # The name may hold blanks and brackets: what follows the last bracket is fixed.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for one in found:
        found += children.get(one, [])
    return found


def _own_kib(process: int) -> int:
    """Proportional set size."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0
    lines = (line.split() for line in text.splitlines())
    return next((int(words[1]) for words in lines if words[0] == "Pss:"), 0)


def size_mib(path: Path) -> float:
    """Bytes of a directory, or of a file."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file()) / 2**20


def measure(work: Path, ranks: int) -> dict[str, Cost]:
    """All commands for one number of ranks; prints their rows."""
    here = work / str(ranks)
    here.mkdir()
    spec, trace, run = here / "spec.toml", here / "trace", here / "run.run"
    report = here / "report.html"
    spec.write_text(SPEC.format(ranks=ranks, late=ranks // 3))
    commands = {
        "simulate": (("simulate", str(spec), "--as", "trace", "-o", str(trace)), trace),
        "ingest": (("ingest", str(trace), "-o", str(run)), run),
        "report": (("report", str(run), "-o", str(report)), report),
        "ranks": (("ranks", str(run), "--all"), None),
    }
    found = {}
    for name, (arguments, made) in commands.items():
        cost = found[name] = measured(*arguments)
        disk = "" if made is None else f"{size_mib(made):.0f}"
        print(
            f"| {ranks} | {name} | {cost.wall_s:.1f} | {cost.cpu_s:.1f} | {cost.cpu_s / ranks:.3f} "
            f"| {cost.peak_mib:.0f} | {disk} |",
            flush=True,
        )
    shutil.rmtree(here)
    return found


def main(work: Path, counts: list[int]) -> None:
    work.mkdir(parents=True, exist_ok=True)
    print("| ranks | command | wall s | CPU s | CPU s a rank | peak MiB | disk MiB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    costs = {ranks: measure(work, ranks) for ranks in counts}
    for ranks, its in costs.items():
        for name, cost in costs.get(2 * ranks, {}).items():
            times = cost.cpu_s / its[name].cpu_s
            print(f"{name}: {2 * ranks} ranks cost {times:.2f} times the CPU time of {ranks}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(one) for one in sys.argv[2:]])
