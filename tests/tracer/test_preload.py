"""LD_PRELOAD: harmless in every program, and a way to trace the ones that use CUDA."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tracer.conftest import read_stream

# Programs that a training job starts, and a child of each kind.
PROGRAMS = {
    "shell": ["bash", "-c", "echo out; echo err >&2; x=$(echo in); (exit 3) || echo $x; exit 5"],
    "dash": ["sh", "-c", "echo one | cat; exit 4"],
    "python": [sys.executable, "-c", "import subprocess; print(subprocess.call(['false']))"],
    "fork": [sys.executable, "-c", "import os; p = os.fork(); p and os.wait(); print(p > 0)"],
    "worker": [
        *(sys.executable, "-c"),
        "from multiprocessing import Pool\nwith Pool(2) as p: print(p.map(abs, [-1, -2]))",
    ],
    "killed": ["sh", "-c", "kill -TERM $$"],
    "none": ["ld", "-v"],
}


def preloaded(
    tracer_build: Path, command: list[str], **more: str
) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GAPSCOPE_", "LD_"))}
    library = tracer_build / "libgapscope_trace.so"
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**kept, "LD_PRELOAD": str(library), **more},
    )


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("traced", [False, True])
def test_programs_without_cuda_do_not_notice(
    tracer_build: Path, tmp_path: Path, program: str, traced: bool
):
    command = PROGRAMS[program]
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]}")
    plain = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    more = {"GAPSCOPE_TRACE_DIR": str(tmp_path / "trace")} if traced else {}
    done = preloaded(tracer_build, command, **more)
    assert (done.returncode, done.stdout, done.stderr) == (
        plain.returncode,
        plain.stdout,
        plain.stderr,
    )
    assert list(tmp_path.iterdir()) == []


def test_compilers_work(tracer_build: Path, tmp_path: Path):
    """gcc starts an assembler and a linker; torch.compile starts gcc."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    source = tmp_path / "one.c"
    source.write_text("int main(void) { return 7; }\n")
    place = {"GAPSCOPE_TRACE_DIR": str(tmp_path / "trace")}
    done = preloaded(tracer_build, ["gcc", str(source), "-o", str(tmp_path / "one")], **place)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert preloaded(tracer_build, [str(tmp_path / "one")], **place).returncode == 7
    assert not (tmp_path / "trace").exists()


SHOW = 'echo "$CUDA_INJECTION64_PATH:$NVTX_INJECTION64_PATH"'


def test_what_it_sets(tracer_build: Path, tmp_path: Path):
    library = str((tracer_build / "libgapscope_trace.so").resolve())
    place = {"GAPSCOPE_TRACE_DIR": str(tmp_path / "trace")}
    for shell in ("sh", "bash"):
        assert preloaded(tracer_build, [shell, "-c", SHOW], **place).stdout == (
            f"{library}:{library}\n"
        )
    # Without a directory to write to it is inert, and another tool's injection stays alone.
    assert preloaded(tracer_build, ["sh", "-c", SHOW]).stdout == ":\n"
    taken = {**place, "CUDA_INJECTION64_PATH": "/other.so"}
    assert preloaded(tracer_build, ["sh", "-c", SHOW], **taken).stdout == "/other.so:\n"


@pytest.mark.parametrize("how", ["direct", "shell", "child"])
def test_programs_with_cuda_are_traced(tracer_build: Path, tmp_path: Path, how: str):
    """The application loads what CUDA_INJECTION64_PATH names, as libcuda does in cuInit."""
    (cupti,) = (tracer_build / "tests" / "cupti-13.0").glob("libcupti.so.??")
    app = [str(tracer_build / "tests" / "traced_app"), str(cupti), "-", "steps", "5"]
    command = {
        "direct": app,
        "shell": ["bash", "-c", shlex.join(app) + "; exit 3"],
        "child": [sys.executable, "-c", f"import subprocess; subprocess.run({app}, check=True)"],
    }[how]
    trace = tmp_path / "trace"
    done = preloaded(tracer_build, command, GAPSCOPE_TRACE_DIR=str(trace))
    assert (done.returncode, done.stdout, done.stderr) == (3 if how == "shell" else 0, "", "")
    (process,) = trace.iterdir()
    assert read_stream(process / "kernel.arrows").num_rows == 50
    # NVTX found it in the same way.
    assert read_stream(process / "range.arrows").num_rows == 55
