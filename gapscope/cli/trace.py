"""`gapscope trace`: run a program with the tracer in its CUDA processes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from gapscope.cli import output
from gapscope.cli.options import DEFAULT_TRACE, Quiet
from gapscope.errors import GapscopeError

LIBRARY = "libgapscope_trace.so"
LIBRARY_VARIABLE = "GAPSCOPE_TRACER"
# The tracer takes no more.
_LONGEST_S = 1e9
# What the tracer calls a process's directory; the number behind it is that of an exec.
_PROCESS = re.compile(r"(?:process|rank-\d+)-(?P<pid>\d+)(?:-\d+)?")


class Window(str, Enum):
    """When to record."""

    ALL = "all"
    PROFILER = "profiler"
    SIGNAL = "signal"


class Graphs(str, Enum):
    """How a CUDA graph is recorded."""

    GRAPH = "graph"
    NODE = "node"


def trace(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="The program, as you type it.")
    ],
    out: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where the streams go.")
    ] = DEFAULT_TRACE,
    window: Annotated[
        Window,
        typer.Option(
            help="`profiler`: only from cudaProfilerStart to cudaProfilerStop. `signal`: from a "
            "SIGUSR2 to this command to the next one."
        ),
    ] = Window.ALL,
    steps: Annotated[
        str | None,
        typer.Option(
            metavar="A:B",
            help="Only from the begin of an NVTX range named like `step A` to that of `step B`.",
        ),
    ] = None,
    duration: Annotated[
        float | None,
        typer.Option(
            metavar="S", min=0.001, max=_LONGEST_S, help="Stop recording after that many seconds."
        ),
    ] = None,
    graphs: Annotated[
        Graphs,
        typer.Option(help="`node`: a record for every kernel of a CUDA graph; costs far more."),
    ] = Graphs.GRAPH,
    lz4: Annotated[bool, typer.Option("--lz4", help="Compress the streams.")] = False,
    fsdp2: Annotated[
        bool,
        typer.Option(
            "--fsdp2",
            help="Have FSDP2 say its units, collectives and steps, and the ranks their clocks.",
        ),
    ] = False,
    quiet: Quiet = False,
) -> int:
    """Run a program and record what its processes do with CUDA.

    The program runs as without it: its output is untouched, and its exit code is the one of this
    command. Each process that uses CUDA writes a directory of Arrow streams below DIR, which
    `gapscope ingest` reads. A torch.profiler in the program records no GPU events meanwhile.

    Example: gapscope trace --fsdp2 -- torchrun --nproc-per-node 2 train.py
    """
    _check_window(window, steps)
    library = find_library()
    _make_directory(out)
    environment = _environment(library, out)
    environment["GAPSCOPE_TRACE_WINDOW"] = window.value
    environment["GAPSCOPE_TRACE_STEPS"] = steps or ""
    environment["GAPSCOPE_TRACE_GRAPHS"] = graphs.value
    environment["GAPSCOPE_TRACE_LZ4"] = "1" if lz4 else "0"
    environment["GAPSCOPE_TRACE_DURATION_MS"] = str(round(1000 * (duration or 0)))
    if fsdp2:
        _instrument(environment)
    code = _run(command, environment, out if window is Window.SIGNAL else None)
    traced = sorted(meta.parent.name for meta in out.glob("*/meta.json"))
    if traced:
        some = ", ".join(traced[:8]) + (", ..." if len(traced) > 8 else "")
        output.say(f"{len(traced)} traced processes in `{out}`: {some}", quiet=quiet)
        if fsdp2 and not any(out.glob("*/instrument.json")):
            output.warn(
                "none of them said what FSDP2 does: it was not used, "
                "or the program's Python lacks `nvtx`"
            )
        output.say(f"  next: gapscope ingest {out}", quiet=quiet)
    else:
        output.warn(f"no process of the program used CUDA, or none could write to `{out}`")
    return code


def _check_window(window: Window, steps: str | None) -> None:
    if steps is None:
        return
    if window is not Window.ALL:
        raise GapscopeError(
            "usage", "`--steps` and `--window` are two windows, and one is recorded", "drop one"
        )
    first, colon, end = steps.partition(":")
    numbers = [text for text in (first, end) if text]
    valid = all(text.isascii() and text.isdigit() and len(text) <= 18 for text in numbers)
    if not (first and colon and valid) or (end and int(first) >= int(end)):
        raise GapscopeError(
            "usage",
            f"`--steps {steps}` names no steps",
            "`--steps 100:110` records steps 100 to 109, `--steps 100:` all from 100 on",
        )


def find_library() -> Path:
    """The tracer: where GAPSCOPE_TRACER says, in its wheel, or built in this checkout."""
    named = os.environ.get(LIBRARY_VARIABLE)
    if named:
        if not Path(named).is_file():
            raise GapscopeError(
                "no-tracer",
                f"`{LIBRARY_VARIABLE}` names `{named}`, which is no file",
                f"let it name {LIBRARY}, or unset it",
            )
        return Path(named).resolve()
    for place in _places():
        if (place / LIBRARY).is_file():
            return (place / LIBRARY).resolve()
    raise GapscopeError(
        "no-tracer",
        "the tracer is not installed: it is a library apart from this package",
        "`cmake -S tracer -B tracer/build -G Ninja && cmake --build tracer/build` in a checkout, "
        f"or let {LIBRARY_VARIABLE} name {LIBRARY}",
    )


def _places() -> Iterator[Path]:
    from importlib.util import find_spec

    spec = find_spec("gapscope_tracer")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(location)
    build = Path(__file__).resolve().parents[2] / "tracer" / "build"
    yield build
    yield build / "release"


def _make_directory(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        filled = any(out.iterdir())
        writable = os.access(out, os.W_OK | os.X_OK)
    except OSError as error:
        raise GapscopeError(
            "cannot-write", f"`{out}` cannot be made: {error.strerror}", "choose another with `-o`"
        ) from error
    if filled:
        # Two runs in one directory would be two captures of each rank.
        raise GapscopeError(
            "exists", f"`{out}` is there and not empty", "remove it, or choose another with `-o`"
        )
    if not writable:
        raise GapscopeError(
            "cannot-write", f"`{out}` cannot be written to", "choose another with `-o`"
        )


def _environment(library: Path, out: Path) -> dict[str, str]:
    environment = dict(os.environ)
    for variable in ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"):
        if environment.get(variable):
            raise GapscopeError(
                "injection-taken",
                f"`{variable}` is already set: another tool would be replaced",
                f"unset {variable}, and run this command outside the other tool",
            )
        environment[variable] = str(library)
    environment["GAPSCOPE_TRACE_DIR"] = str(out.resolve())
    return environment


def _instrument(environment: dict[str, str]) -> None:
    """Have every Python of the program load the hooks as it starts."""
    from importlib.util import find_spec

    if find_spec("nvtx") is None:
        raise GapscopeError(
            "no-nvtx",
            "`--fsdp2` speaks through the package nvtx, which is not installed",
            "`pip install 'gapscope[trace]'` in the environment of the program",
        )
    # By its place and not by import: the program's Python need not have GapScope.
    site = Path(__file__).resolve().parents[1] / "instrument" / "site"
    before = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = f"{site}{os.pathsep}{before}" if before else str(site)


def _run(command: list[str], environment: dict[str, str], signalled: Path | None) -> int:
    """Run the command to its end; its exit code, as a shell would report it.

    SIGUSR2 goes to the processes that are traced into `signalled`, if there is such a place.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        child = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise GapscopeError(
            "cannot-start",
            f"`{command[0]}` cannot be started: {error.strerror}",
            "check the command after `--`",
        ) from error
    with _signals_to(child, signalled):
        code = child.wait()
    return code if code >= 0 else 128 - code


@contextmanager
def _signals_to(child: subprocess.Popen[Any], signalled: Path | None) -> Iterator[None]:
    """The child decides what a signal means. A terminal's Ctrl-C reaches it by itself."""

    def forward(number: int, _frame: object) -> None:
        if number == signal.SIGUSR2 and signalled is not None:
            # A launcher in between would die of it.
            _signal_traced(signalled)
        else:
            child.send_signal(number)

    before = {signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None)}
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, forward)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _signal_traced(out: Path) -> None:
    """SIGUSR2 to the processes of this machine that are being traced into `out`."""
    place = f"GAPSCOPE_TRACE_DIR={out.resolve()}".encode()
    named = [_PROCESS.fullmatch(meta.parent.name) for meta in out.glob("*/meta.json")]
    found = [match for match in named if match and _is_of_this_host(out / match[0])]
    for pid in {match["pid"] for match in found}:
        # Its environment tells it from a later one of the same number.
        with suppress(OSError):
            if place in Path("/proc", pid, "environ").read_bytes().split(b"\0"):
                os.kill(int(pid), signal.SIGUSR2)


def _is_of_this_host(directory: Path) -> bool:
    """Not another host's process, whose number a launcher may have here, that would die of it."""
    with suppress(OSError, ValueError):
        meta = json.loads((directory / "meta.json").read_bytes())
        return isinstance(meta, dict) and meta.get("hostname") == socket.gethostname()
    return False
