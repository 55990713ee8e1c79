"""Kill an ingest at random moments, run it again, compare the run with that of one not killed.

Run from the top of the checkout: `python -m experiments.scale.kill CAPTURES WORK [MOMENTS SEED]`.
A moment after the ingest has ended by itself does not count.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.cluster.same import differences


def start(captures: Path, out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gapscope", "ingest", str(captures), "-o", str(out)]
    return subprocess.Popen(
        [*command, "--workers", "2"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def whole(captures: Path, out: Path) -> tuple[float, int]:
    """Seconds of an ingest that nobody kills, and the captures that it took over."""
    begin = time.perf_counter()
    process = start(captures, out)
    _, said = process.communicate()
    assert process.returncode == 0, said
    taken = [line.split()[-1] for line in said.splitlines() if "taken over" in line]
    return time.perf_counter() - begin, int(taken[0]) if taken else 0


def main(captures: Path, work: Path, moments: int = 20, seed: int = 20) -> None:
    reference = work / "reference.run"
    shutil.rmtree(reference, ignore_errors=True)
    whole_s, _ = whole(captures, reference)
    print(f"not killed: {whole_s:.1f} s")
    draw = random.Random(seed)  # noqa: S311 -- moments, no secrets
    out = work / "killed.run"
    number = 0
    while number < moments:
        shutil.rmtree(out, ignore_errors=True)
        moment_s = draw.uniform(0, whole_s)
        process = start(captures, out)
        time.sleep(moment_s)
        if process.poll() is not None:
            process.communicate()
            continue
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        number += 1
        if out.exists():
            shutil.rmtree(out)
        again_s, taken = whole(captures, out)
        left = [path.name for path in work.glob(".*")]
        print(
            f"{number:2}  at {moment_s:5.1f} s: "
            f"{taken} captures taken over, again {again_s:.1f} s, "
            f"differences {differences(reference, out) or 'none'}, left behind {left or 'nothing'}",
            flush=True,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))
