"""The `gapscope` command: its parts, its version line, and how errors become exit codes."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from gapscope.cli import (
    check,
    compare,
    demo,
    doctor,
    export,
    ingest,
    output,
    ranks,
    report,
    rules,
    simulate,
    sql,
    steps,
    trace,
    validate,
    what_if,
)
from gapscope.errors import EXIT_COULD_NOT_RUN, GapscopeError, Stopped

EXIT_BROKEN_PIPE = 141

app = typer.Typer(
    name="gapscope",
    no_args_is_help=True,
    # Tracebacks with local variables could print paths and tokens; plain help starts faster.
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS = (
    ingest.ingest,
    report.report,
    sql.sql,
    steps.steps,
    ranks.ranks,
    doctor.doctor,
    export.export,
    demo.demo,
    rules.rules,
    what_if.what_if,
    compare.compare,
    check.check,
    validate.validate,
    simulate.simulate,
)
for command in _COMMANDS:
    app.command()(command)
# What follows the first word is the program's, also where it looks like an option.
app.command(context_settings={"allow_interspersed_args": False})(trace.trace)

# Newer Typers validate with pydantic, whose sentences about its own insides reach the user.
_WORDING = (
    (re.compile(r"Value error, "), ""),
    (re.compile(r"Input should be a valid integer.*"), "not a whole number"),
    (re.compile(r"Input should be greater than or equal to "), "must be at least "),
)


def version_line() -> str:
    """Every surface that is versioned on its own, in one parseable line."""
    from importlib.metadata import PackageNotFoundError, version

    from gapscope._version import __version__
    from gapscope.report.document import REPORT_VERSION
    from gapscope.schema.tables import SCHEMA_VERSION
    from gapscope.schema.views import SQL_VERSION

    try:
        duckdb = version("duckdb")
    except PackageNotFoundError:
        duckdb = "missing"
    return (
        f"gapscope {__version__} (sql {SQL_VERSION}, schema {SCHEMA_VERSION}, "
        f"report {REPORT_VERSION}, duckdb {duckdb})"
    )


def _print_version(value: bool) -> None:
    if value:
        output.data(version_line())
        raise typer.Exit


@app.callback()
def _global(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show versions and exit."
        ),
    ] = False,
) -> None:
    """How much of a GPU training step could be got back, and how you know.

    Start with `gapscope ingest TRACES/` and then `gapscope report`, or see both at work on a
    shipped capture with `gapscope demo`.
    """


def main() -> None:
    """Run the command line and exit: 0 done, 1 a check failed, 2 could not run, 3 inconclusive."""
    sys.exit(run())


def run(arguments: list[str] | None = None) -> int:
    """The command line without the exit; returns the exit code."""
    stops = _Stops()
    with stops.listening():
        return _run(arguments, stops)


def _run(arguments: list[str] | None, stops: _Stops) -> int:
    try:
        code = app(args=arguments, prog_name="gapscope", standalone_mode=False)
        sys.stdout.flush()
    except GapscopeError as error:
        if stops.number is not None:
            return stops.end()
        output.fail(error)
        return error.exit_code
    except (Stopped, KeyboardInterrupt, typer.Abort):
        return stops.end()
    except SystemExit as stop:
        # Typer itself ends like this, with 1, when whoever reads stdout went away.
        return EXIT_BROKEN_PIPE if stop.code == 1 else int(stop.code or 0)
    except BrokenPipeError:
        # The reader went away; nothing is left to say, not even by the interpreter's last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_BROKEN_PIPE
    except Exception as error:  # noqa: BLE001 -- the boundary: no traceback unless asked for
        return stops.end() if stops.number is not None else _unexpected(error, arguments)
    return code if isinstance(code, int) else 0


class _Stops:
    """The signal that asks the command to end. It unwinds, so that no half a run is left."""

    def __init__(self) -> None:
        self.number: int | None = None

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Unwind on the signals that stop a command; afterwards they do what they did before."""
        before: dict[int, Any] = {}
        Stopped.number = None
        if threading.current_thread() is threading.main_thread():
            for name in ("SIGINT", "SIGTERM", "SIGHUP"):
                number = getattr(signal, name, None)
                # What is ignored stays ignored: `nohup` does that to SIGHUP on purpose.
                if number is not None and signal.getsignal(number) != signal.SIG_IGN:
                    before[number] = signal.signal(number, self._stop)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def end(self) -> int:
        """Say what happened; the exit code that shells expect."""
        number = self.number or signal.SIGINT
        output.say("interrupted" if number == signal.SIGINT else "terminated")
        return 128 + number

    def _stop(self, number: int, _frame: object) -> None:
        self.number = Stopped.number = number
        raise Stopped


def _unexpected(error: Exception, arguments: list[str] | None) -> int:
    if _is_usage_error(error):
        output.fail(_usage_error(error, arguments))
        return EXIT_COULD_NOT_RUN
    if os.environ.get("GAPSCOPE_DEBUG"):
        import traceback

        traceback.print_exception(error)
    if isinstance(error, OSError):
        where = f" `{error.filename}`" if error.filename else ""
        hint = "look at permissions, free space and the path"
        output.fail(GapscopeError("os", f"{error.strerror or error}{where}", hint))
        return EXIT_COULD_NOT_RUN
    hint = "this is a bug in gapscope; see the traceback with `GAPSCOPE_DEBUG=1`"
    output.fail(GapscopeError("internal", f"{type(error).__name__}: {error}"[:300], hint))
    return EXIT_COULD_NOT_RUN


def _is_usage_error(error: Exception) -> bool:
    # Typer carries its own click or imports the installed one, depending on its version.
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def _usage_error(error: Exception, arguments: list[str] | None) -> GapscopeError:
    context = getattr(error, "ctx", None)
    if context is not None:
        path = context.command_path
    else:
        # Errors of the parser itself carry no context: the command is what was typed first.
        typed = (sys.argv[1:] if arguments is None else arguments)[:1]
        known = {command.__name__.replace("_", "-") for command in (*_COMMANDS, trace.trace)}
        path = " ".join(["gapscope", *(name for name in typed if name in known)])
    # typer brings its own click, without types.
    message = error.format_message().rstrip(".")  # type: ignore[attr-defined]
    if not message:
        # `no_args_is_help` raises with the help as its message already shown.
        message = "no command given"
    for leaked, said in _WORDING:
        message = leaked.sub(said, message)
    return GapscopeError("usage", message[:1].lower() + message[1:], f"`{path} --help`")
