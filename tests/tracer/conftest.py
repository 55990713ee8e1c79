"""The tracer, built once a session, and a way to play scenarios of its traced application."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

TRACER = Path(__file__).resolve().parents[2] / "tracer"


@dataclass
class Played:
    """What a scenario left: exit code, what it printed, and the directory of its processes."""

    code: int
    stdout: str
    stderr: str
    directory: Path

    def process(self) -> Path:
        """The one traced process."""
        (found,) = self.directory.iterdir()
        return found

    def table(self, name: str) -> pa.Table:
        """A table of the one process."""
        return read_stream(self.process() / f"{name}.arrows")


def read_stream(path: Path) -> pa.Table:
    with pa.OSFile(str(path), "rb") as file:
        source = pa.CompressedInputStream(file, "lz4") if path.suffix == ".lz4" else file
        table = pa.ipc.open_stream(source).read_all()
    table.validate(full=True)
    return table


@pytest.fixture(scope="session")
def tracer_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build tree: GAPSCOPE_TRACER_BUILD, or one made here."""
    given = os.environ.get("GAPSCOPE_TRACER_BUILD")
    if given:
        return Path(given)
    missing = [tool for tool in ("cmake", "ninja", "g++") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"the tracer cannot be built without {' and '.join(missing)}")
    build = tmp_path_factory.mktemp("tracer-build")
    python = sys.executable
    for command in (
        ["-S", str(TRACER), "-B", str(build), "-G", "Ninja", f"-DPython3_EXECUTABLE={python}"],
        ["--build", str(build)],
    ):
        done = subprocess.run(["cmake", *command], capture_output=True, text=True, check=False)
        if done.returncode != 0 and "could not be fetched" in done.stderr:
            pytest.skip("the tracer's pinned sources cannot be fetched: no package index")
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return build


Play = Callable[..., Played]


@pytest.fixture
def play(tracer_build: Path, tmp_path: Path) -> Play:
    """Play `scenario` on the fake libcupti of `version`; further keywords are its environment."""

    def run(scenario: str, *arguments: str, version: str = "13.0", **more: str) -> Played:
        directory = tmp_path / f"trace-{scenario}-{version}"
        library = tracer_build / "libgapscope_trace.so"
        (cupti,) = (tracer_build / "tests" / f"cupti-{version}").glob("libcupti.so.??")
        environment = {
            "PATH": os.environ["PATH"],
            "NVTX_INJECTION64_PATH": str(library),
            "GAPSCOPE_TRACE_DIR": str(directory),
            "GAPSCOPE_TRACE_FLUSH_MS": "50",
            **more,
        }
        if environment.get("SLOW_DISK_MS"):
            environment["LD_PRELOAD"] = str(tracer_build / "tests" / "libslow_disk.so")
        app = tracer_build / "tests" / "traced_app"
        done = subprocess.run(
            [str(app), str(cupti), str(library), scenario, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=120,
        )
        return Played(done.returncode, done.stdout, done.stderr, directory)

    return run
