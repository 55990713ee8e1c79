"""`gapscope trace`: the program's exit code and output, and what it finds in its environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SHOW = (
    "import os; print(*(os.environ.get(n) for n in ("
    "'CUDA_INJECTION64_PATH', 'NVTX_INJECTION64_PATH', 'GAPSCOPE_TRACE_DIR', "
    "'GAPSCOPE_TRACE_WINDOW', 'GAPSCOPE_TRACE_GRAPHS', 'GAPSCOPE_TRACE_DURATION_MS', "
    "'GAPSCOPE_TRACE_STEPS')))"
)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    file = tmp_path / "libgapscope_trace.so"
    file.write_bytes(b"")
    return file


def trace(library: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gapscope", "trace", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=library.parent,
        env={**os.environ, "GAPSCOPE_TRACER": str(library), **more},
    )


def test_program_gets_the_tracer_and_keeps_its_output(library: Path):
    options = ("-o", "t", "--window", "profiler", "--graphs", "node", "--duration", "1.5")
    done = trace(library, *options, "--", sys.executable, "-c", SHOW)
    assert done.returncode == 0
    assert done.stdout.split() == [
        *(str(library), str(library), str(library.parent / "t"), "profiler", "node", "1500"),
    ]
    assert "no process of the program used CUDA" in done.stderr


@pytest.fixture
def nvtx(tmp_path: Path) -> Path:
    """A folder with something of that name to import."""
    folder = tmp_path / "with-nvtx"
    folder.mkdir()
    (folder / "nvtx.py").write_text("")
    return folder


def test_fsdp2_puts_its_hook_in_front_of_the_path(library: Path, nvtx: Path):
    show = "import os; print(*os.environ['PYTHONPATH'].split(os.pathsep))"
    done = trace(
        library, "--fsdp2", "-o", "t", "--", sys.executable, "-c", show, PYTHONPATH=str(nvtx)
    )
    hook, *others = done.stdout.split()
    assert (Path(hook) / "sitecustomize.py").is_file()
    assert others == [str(nvtx)]


def test_fsdp2_that_nobody_used_is_said(library: Path, nvtx: Path):
    script = "import os; d = os.environ['GAPSCOPE_TRACE_DIR'] + '/rank-0-7'; os.mkdir(d); open(d + '/meta.json', 'w')"
    command = ("--", sys.executable, "-c", script)
    done = trace(library, "--fsdp2", "-o", "t", *command, PYTHONPATH=str(nvtx))
    assert done.returncode == 0
    assert "none of them said what FSDP2 does" in done.stderr


def test_fsdp2_without_nvtx_is_refused_before_the_program_runs(library: Path):
    # Whether or not it is installed here.
    start = (
        "import importlib.util as u, sys; find = u.find_spec;"
        "u.find_spec = lambda name, *more: None if name == 'nvtx' else find(name, *more);"
        "from gapscope.cli.app import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", start, "trace", "--fsdp2", "-o", "t", "--", "touch", "ran"],
        capture_output=True,
        text=True,
        check=False,
        cwd=library.parent,
        env={**os.environ, "GAPSCOPE_TRACER": str(library)},
    )
    assert done.returncode == 2
    assert "pip install 'gapscope[trace]'" in done.stderr
    assert not (library.parent / "ran").exists()


def test_steps_reach_the_tracer(library: Path):
    done = trace(library, "--steps", "100:110", "--", sys.executable, "-c", SHOW)
    assert (done.returncode, done.stdout.split()[-1]) == (0, "100:110")


@pytest.mark.parametrize("steps", ["5", ":8", "8:5", "5:5", "a:b", "-1:4", "1:2:3", ""])
def test_steps_that_are_none(library: Path, steps: str):
    done = trace(library, f"--steps={steps}", "--", "true")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"`--steps {steps}` names no steps" in done.stderr


def test_traced_processes_are_named_with_the_next_command(library: Path):
    script = "import os; d = os.environ['GAPSCOPE_TRACE_DIR'] + '/rank-0-7'; os.mkdir(d); open(d + '/meta.json', 'w')"
    done = trace(library, "-o", "t", "--", sys.executable, "-c", script)
    assert "1 traced processes in `t`: rank-0-7" in done.stderr
    assert "next: gapscope ingest t" in done.stderr
    quiet = trace(library, "-q", "-o", "u", "--", sys.executable, "-c", script)
    assert quiet.stderr == ""


@pytest.mark.parametrize(
    ("program", "code"),
    [("raise SystemExit(42)", 42), ("import os; os.kill(os.getpid(), 9)", 128 + 9)],
)
def test_exit_code_is_the_programs(library: Path, program: str, code: int):
    done = trace(library, "--", sys.executable, "-c", program)
    assert (done.returncode, done.stdout) == (code, "")


def test_options_of_the_program_are_its_own(library: Path):
    done = trace(library, "--", "sh", "-c", "echo $0 $1", "--quiet", "-h")
    assert done.stdout == "--quiet -h\n"


def test_signals_go_to_the_program(library: Path):
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)"
    )
    child = subprocess.Popen(
        [sys.executable, "-m", "gapscope", "trace", "--", sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=library.parent,
        env={**os.environ, "GAPSCOPE_TRACER": str(library)},
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        # The parent installs its handlers right after starting the program.
        time.sleep(0.5)
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=30) == 9


def test_window_signal_goes_to_the_traced_processes(library: Path):
    """Not to the program between, which would die of it, also where another host has a traced
    process of its number; nor to a process that is not traced here."""
    program = (
        "import json, os, signal, socket, subprocess, sys\n"
        "count = []\n"
        "signal.signal(signal.SIGUSR2, lambda *_: (count.append(1), print('got', flush=True)))\n"
        "place = os.environ['GAPSCOPE_TRACE_DIR']\n"
        "here = socket.gethostname()\n"
        "names = {f'rank-0-{os.getpid()}': here, f'rank-0-{os.getpid()}-1': here, 'other': here,\n"
        "         'process-1': here, f'rank-8-{os.getppid()}': 'another-host'}\n"
        "for name, host in names.items():\n"
        "    os.mkdir(f'{place}/{name}')\n"
        "    with open(f'{place}/{name}/meta.json', 'w') as file:\n"
        "        json.dump({'hostname': host}, file)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
        "print(len(count))"
    )
    launcher = (
        f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {program!r}]))"
    )
    child = subprocess.Popen(
        [
            *(sys.executable, "-m", "gapscope", "trace", "--window", "signal", "--"),
            *(sys.executable, "-c", launcher),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=library.parent,
        env={**os.environ, "GAPSCOPE_TRACER": str(library)},
    )
    with child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == b"ready\n"
        # The parent installed its handlers before: a program takes longer to start.
        child.send_signal(signal.SIGUSR2)
        assert child.stdout.readline() == b"got\n"
        child.stdin.close()
        assert child.stdout.read() == b"1\n"
        assert child.wait(timeout=30) == 0


def test_library_of_the_wheel_is_found(library: Path):
    package = library.parent / "site" / "gapscope_tracer"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / library.name).write_text("")
    path = os.pathsep.join([str(package.parent), os.environ.get("PYTHONPATH", "")])
    more = {"GAPSCOPE_TRACER": "", "PYTHONPATH": path}
    done = trace(library, "--", sys.executable, "-c", SHOW, **more)
    assert done.stdout.split()[0] == str(package / library.name)


def test_errors(library: Path):
    for arguments, more, slug in (
        (("--", "no-such-program"), {}, "cannot-start"),
        (("-o", "file/below", "--", "true"), {}, "cannot-write"),
        (("-o", "filled", "--", "true"), {}, "exists"),
        (("-o", "new", "--", "true"), {"CUDA_INJECTION64_PATH": "/x.so"}, "injection-taken"),
        (("--", "true"), {"GAPSCOPE_TRACER": "/no/such.so"}, "no-tracer"),
        (("--duration", "inf", "--", "true"), {}, "usage"),
        (("--duration", "nan", "--", "true"), {}, "usage"),
        (("--steps", "1:2", "--window", "signal", "--", "true"), {}, "usage"),
        ((), {}, "usage"),
    ):
        (library.parent / "file").write_text("")
        (library.parent / "filled").mkdir(exist_ok=True)
        (library.parent / "filled" / "x").write_text("")
        done = trace(library, *arguments, **more)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"error[{slug}]: ")
        assert "hint: " in done.stderr
