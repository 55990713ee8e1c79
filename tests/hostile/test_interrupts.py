"""Ingests that are stopped, killed or raced: no half-written run, no orphans, no mixture."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.hostile.captures import kineto, write_kineto
from tests.hostile.conftest import HANG_S, Cli, command, environment, listed, tree


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough to be in the middle of it for some seconds."""
    folder = tmp_path_factory.mktemp("in")
    for rank in range(3):
        write_kineto(folder / f"{rank}.json", kineto(rank, steps=4_000))
    return folder


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command("ingest", *arguments),
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Under nohup the tests themselves ignore it, and what they start would too.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # noqa: PLW1509 -- no threads
    )


def until_busy(process: subprocess.Popen[str], place: Path, depth: str) -> None:
    """Wait until the unfinished run has files of that kind."""
    deadline = time.monotonic() + HANG_S
    while not list(place.glob(depth)):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def alive(session: int) -> list[int]:
    """Processes that still run in a session, by their id."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def assert_all_end(session: int) -> None:
    """Soon: `multiprocessing` has a process of its own, which ends after the one that it serves."""
    deadline = time.monotonic() + 20
    while alive(session):
        assert time.monotonic() < deadline, "workers outlive the command"
        time.sleep(0.1)


READING, DERIVING = ".out.tmp-*/staging/*/*/*.parquet", ".out.tmp-*/deriving/*/*/*.parquet"
KEPT = "what was finished is kept: the same command goes on from it"


@pytest.mark.parametrize(
    ("number", "code", "word", "workers", "when"),
    [
        (signal.SIGINT, 130, "interrupted", "1", READING),
        (signal.SIGINT, 130, "interrupted", "2", DERIVING),
        (signal.SIGTERM, 143, "terminated", "1", DERIVING),
        (signal.SIGTERM, 143, "terminated", "2", READING),
        (signal.SIGHUP, 129, "terminated", "1", READING),
    ],
)
def test_stopped(
    inputs: Path, tmp_path: Path, number: int, code: int, word: str, workers: str, when: str
) -> None:
    before = tree(inputs)
    process = start(inputs, "-o", tmp_path / "out", "--workers", workers)
    until_busy(process, tmp_path, when)
    # The terminal sends Ctrl-C to all processes of the group.
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    out, err = process.communicate(timeout=HANG_S)
    assert (process.returncode, out) == (code, "")
    # A batch system's signal comes again before the end: what is finished is not lost to it.
    kept = number != signal.SIGINT and (when == DERIVING or KEPT in err)
    assert err.splitlines() == [*([KEPT] if kept else []), word]
    assert len(listed(tmp_path)) == kept
    assert tree(inputs) == before
    assert_all_end(process.pid)


def test_killed(inputs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = start(inputs, "-o", out, "--workers", "2")
    until_busy(process, tmp_path, READING)
    process.kill()
    process.communicate(timeout=HANG_S)
    left = listed(tmp_path)
    assert len(left) == 1
    assert left[0].startswith(".out.tmp-")
    assert_all_end(process.pid)
    again = start(inputs / "0.json", "-o", out)
    _, err = again.communicate(timeout=HANG_S)
    assert again.returncode == 0, err
    assert listed(tmp_path) == ["out"]


def test_two_at_once(tmp_path: Path, cli: Cli) -> None:
    out = tmp_path / "out"
    folder = tmp_path / "in"
    folder.mkdir()
    for rank in (0, 1):
        write_kineto(folder / f"{rank}.json", kineto(rank, steps=2 + rank))
    for more in ([], ["-f"]):
        racers = [start(folder / f"{rank}.json", "-o", out, *more) for rank in (0, 1)]
        ends = [(*racer.communicate(timeout=HANG_S), racer.returncode) for racer in racers]
        codes = sorted(code for *_, code in ends)
        assert codes in ([0, 2], [0, 0]) if more else codes == [0, 2], ends
        assert all(err.startswith("error[exists]") for _, err, code in ends if code == 2), ends
        rows = cli("sql", out, "-c", "SELECT rank, count(*) AS n FROM op GROUP BY 1")
        assert rows.stdout.split()[-2:] in (["0", "2"], ["1", "3"])
        assert (listed(tmp_path)) == ["in", "out"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_old_run_survives_a_stopped_successor(
    inputs: Path, tmp_path: Path, tiny_run: Path, number: int
) -> None:
    out = Path(shutil.copytree(tiny_run, tmp_path / "out"))
    before = tree(out)
    process = start(inputs, "-o", out, "-f", "--workers", "1")
    until_busy(process, tmp_path, DERIVING)
    process.send_signal(number)
    process.communicate(timeout=HANG_S)
    assert process.returncode != 0
    assert tree(out) == before
