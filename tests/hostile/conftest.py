"""Watch an ingest of something broken: what it says, and that it leaves everything as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gapscope.errors import GapscopeError
from gapscope.ingest import pipeline

ROOT = Path(__file__).resolve().parents[2]
HANG_S = 60

_CLEARED = ("NO_COLOR", "FORCE_COLOR", "CI", "GAPSCOPE_DEBUG", "GAPSCOPE_NO_PROGRESS")

Tree = dict[str, tuple[Any, ...]]


def tree(directory: Path, *, without: tuple[Path, ...] = ()) -> Tree:
    """Everything below, with kind, content and time of change; links are not followed."""
    found: Tree = {}
    for folder, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if Path(folder, name) not in without]
        for name in [*folders, *files]:
            path = Path(folder, name)
            status = path.lstat()
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
            stamp = status.st_mtime_ns if content is not None else None
            found[str(path.relative_to(directory))] = (status.st_mode, stamp, content)
    return found


def listed(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "gapscope", *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _CLEARED}
    return kept | {"COLUMNS": "80", "PYTHONPATH": str(ROOT)} | more


Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def cli() -> Cli:
    """`cli("report", run)`: exit code, stdout and stderr; bytes that are no UTF-8 survive."""

    def run(
        *arguments: str | Path, cwd: Path | None = None, **more: Any
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments),
            cwd=cwd,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            check=False,
            timeout=HANG_S,
            **more,
        )

    return run


@pytest.fixture
def here(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Like `cli`, inside this process: no start of an interpreter each time."""
    from gapscope.cli.app import run

    monkeypatch.setenv("PATH", os.defpath)

    def call(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        if cwd is not None:
            monkeypatch.chdir(cwd)
        code = run([str(argument) for argument in arguments])
        said = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, code, said.out, said.err)

    return call


def assert_one_error(done: subprocess.CompletedProcess[str], slug: str = "") -> None:
    """Exit code 2, nothing on stdout, `error[slug]: ...` and its hint on stderr, no more."""
    lines = done.stderr.splitlines()
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(lines) == 2, done.stderr
    assert lines[0].startswith(f"error[{slug}]: " if slug else "error["), done.stderr
    assert not lines[0].startswith("error[internal]"), done.stderr
    assert lines[1].startswith("  hint: ")


@dataclass
class Outcome:
    """Either `error`, or the `rows` of each rank and the rows of capture_quality."""

    error: GapscopeError | None
    rows: dict[int, dict[str, int]]
    quality: list[tuple[int | None, str, str, str]]
    out: Path

    def check(self, name: str) -> tuple[str, str]:
        """Status and detail of one check, the first of that name."""
        return next((s, d) for _, check, s, d in self.quality if check == name)

    def notable(self) -> set[str]:
        return {check for _, check, status, _ in self.quality if status in ("warn", "fail")}


Attempt = Callable[..., Outcome]


@pytest.fixture
def attempt(tmp_path: Path) -> Iterator[Attempt]:
    """Ingest into `tmp_path/out`: an error or a run, in time, and no trace of it elsewhere."""

    def late(number: int, frame: object) -> None:
        pytest.fail("the ingest hangs")

    def run(*sources: Path, **options: Any) -> Outcome:
        out = tmp_path / "out"
        before = tree(tmp_path, without=(out,))
        previous = tree(out) if out.exists() else None
        outcome = Outcome(None, {}, [], out)
        try:
            outcome.rows = pipeline.ingest(list(sources), out, **{"workers": 1, **options}).rows
        except GapscopeError as error:
            assert error.slug != "internal"
            assert error.message
            assert error.hint
            assert "\n" not in error.message + error.hint
            outcome.error = error
        assert tree(tmp_path, without=(out,)) == before
        if outcome.error is not None:
            assert (tree(out) if out.exists() else None) == previous
        else:
            assert set(listed(out)) == {"data", "derived", "manifest.json", "run.duckdb"}
            outcome.quality = quality_of(out)
        return outcome

    old = signal.signal(signal.SIGALRM, late)
    signal.alarm(HANG_S)
    yield run
    signal.alarm(0)
    signal.signal(signal.SIGALRM, old)


def quality_of(run: Path) -> list[tuple[int | None, str, str, str]]:
    import duckdb

    with duckdb.connect(str(run / "run.duckdb"), read_only=True) as con:
        return con.execute(
            "SELECT rank, check_name, status, detail FROM v1.capture_quality ORDER BY ALL"
        ).fetchall()
