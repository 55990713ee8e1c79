"""Real FSDP2 on gloo and CPU, with the real tracer as what listens to NVTX."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.tracer.conftest import read_stream, tracer_build  # noqa: F401 -- a fixture

HERE = Path(__file__).parent
SITE = ROOT / "gapscope" / "instrument" / "site"
KINDS = ("push_pop", "start_end", "mark")


def needs_torch() -> None:
    missing = [name for name in ("torch", "nvtx") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}: pip install torch==2.13.0 nvtx")


@dataclass
class Range:
    """A range or mark as the tracer recorded it."""

    tid: int
    domain: str
    kind: str
    text: str
    start_ns: int
    end_ns: int
    payload: int

    @property
    def said(self) -> dict[str, Any]:
        """What stands behind the first word of an anchor or collective."""
        return json.loads(self.text.split(" ", 1)[1])


@dataclass
class Rank:
    """What one process left."""

    code: int
    stdout: str
    stderr: str
    directory: Path | None

    @property
    def record(self) -> dict[str, Any]:
        return json.loads((self.directory / "instrument.json").read_text())

    def ranges(self) -> list[Range]:
        """In the order of their starts, the outer first."""
        names = {row["id"]: row["text"] for row in self.table("name")}
        threads = {row["id"]: row["tid"] for row in self.table("thread")}
        rows = [
            Range(
                threads[row["thread"]],
                names.get(row["domain"], ""),
                KINDS[row["kind"]],
                names[row["name"]],
                row["start_ns"],
                row["end_ns"],
                row["sequence"],
            )
            for row in self.table("range")
        ]
        return sorted(rows, key=lambda r: (r.start_ns, -r.end_ns))

    def ours(self, first_word: str) -> list[Range]:
        return [
            r for r in self.ranges() if r.domain == "gapscope" and r.text.startswith(first_word)
        ]

    def table(self, name: str) -> list[dict[str, Any]]:
        return read_stream(self.directory / f"{name}.arrows").to_pylist()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def launch(
    program: list[str],
    trace: Path,
    library: Path,
    ranks: int = 2,
    *,
    hook: bool = True,
    **more: str,
) -> list[Rank]:
    """Run `python PROGRAM` as that many ranks, each traced. Variables that are empty are unset."""
    trace.mkdir(parents=True, exist_ok=True)
    shared = {
        **{k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTEST_CURRENT_TEST")},
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(ranks),
        "OMP_NUM_THREADS": "1",
        "NVTX_INJECTION64_PATH": str(library),
        "GAPSCOPE_TRACE_DIR": str(trace),
        "PYTHONPATH": str(SITE) if hook else "",
        "PYTHONWARNINGS": "ignore",
        **more,
    }
    processes = [
        subprocess.Popen(
            [sys.executable, *program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **{k: v for k, v in shared.items() if v},
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
            },
        )
        for rank in range(ranks)
    ]
    done = []
    for rank, process in enumerate(processes):
        stdout, stderr = process.communicate(timeout=180)
        directory = next(trace.glob(f"rank-{rank}-*"), None)
        done.append(Rank(process.returncode, stdout, stderr, directory))
    return done


@dataclass
class Trained:
    """A scenario of `train.py`, and what torch.profiler saw of the same steps."""

    ranks: list[Rank]
    trace: Path
    kineto: list[Path]


@pytest.fixture(scope="session")
def library(request: pytest.FixtureRequest) -> Path:
    needs_torch()
    return request.getfixturevalue("tracer_build") / "libgapscope_trace.so"


@pytest.fixture(scope="session")
def train(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Trained]:
    """A scenario, run once a session."""
    known: dict[str, Trained] = {}

    def run(scenario: str) -> Trained:
        if scenario not in known:
            place = tmp_path_factory.mktemp(scenario)
            ranks = 4 if scenario in ("int", "hybrid") else 2
            program = [str(HERE / "train.py"), scenario, str(place / "kineto-%d.json")]
            done = launch(program, place / "trace", library, ranks)
            assert [rank.code for rank in done] == [0] * ranks, done[0].stderr[-2000:]
            kineto = [place / f"kineto-{rank}.json" for rank in range(ranks)]
            known[scenario] = Trained(done, place / "trace", kineto)
        return known[scenario]

    return run
