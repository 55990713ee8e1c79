"""An ingest that was killed is gone on with, and the run is that of one that was not killed."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from tests.cluster.conftest import CAPTURES, ingest, kill_group, start, until
from tests.cluster.same import differences

STAGED = ".out.tmp-*/staging/*/*/finished.json"
DERIVED = ".out.tmp-*/deriving/*/*/finished.json"
FILLING = f".out.tmp-*/derived/*/rank={CAPTURES - 1}"


@pytest.mark.parametrize(
    ("moment", "count", "at_least"),
    [(".out.tmp-*", 1, 0), (STAGED, 2, 2), (DERIVED, 3, CAPTURES), (FILLING, 1, CAPTURES)],
    ids=["at-once", "reading", "deriving", "filling"],
)
def test_killed_and_run_again(captures, local_run, tmp_path, moment, count, at_least):
    out = tmp_path / "out"
    process = start(captures, "-o", out, "--workers", "2")
    until(lambda: len(list(tmp_path.glob(moment))) >= count, moment, process)
    kill_group(process)
    assert not out.exists()
    again = ingest(captures, "-o", out, "--workers", "2")
    assert again.returncode == 0, again.stderr
    said = [line for line in again.stderr.splitlines() if "taken over" in line]
    assert sum(int(line.split()[-1]) for line in said) >= at_least
    assert differences(local_run, out) == {}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert sorted(path.name for path in out.iterdir()) == sorted(
        path.name for path in local_run.iterdir()
    )


@pytest.fixture
def killed(sample, tmp_path):
    """Two captures, read whole by an ingest that was then killed."""
    folder = Path(shutil.copytree(sample, tmp_path / "in"))
    process = start(folder, "-o", tmp_path / "out", "--workers", "1")
    until(lambda: list(tmp_path.glob(DERIVED)), "deriving", process)
    kill_group(process)
    return folder


def test_a_capture_that_changed_is_read_again(killed, tmp_path):
    first, second = sorted(killed.glob("*.gz"))
    shutil.copy(second, first)
    done = ingest(killed, "-o", tmp_path / "out", "--json", "--rank", f"{first.name}=7")
    assert done.returncode == 0, done.stderr
    assert "taken over, not read again: 1\n" in done.stderr
    digests = [
        source["digest"]
        for source in json.loads((tmp_path / "out" / "manifest.json").read_text())["sources"]
    ]
    assert digests[0] == digests[1]


def test_a_piece_that_lost_its_end_is_made_again(killed, sample, tmp_path):
    for file in tmp_path.glob(".out.tmp-*/staging/*/*/gpu_op.parquet"):
        file.write_bytes(file.read_bytes()[:100])
    for file in tmp_path.glob(".out.tmp-*/deriving/*/*/op_launch.parquet"):
        file.write_bytes(b"")
    done = ingest(killed, "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    untouched = ingest(sample, "-o", tmp_path / "untouched")
    assert untouched.returncode == 0
    assert differences(tmp_path / "out", tmp_path / "untouched") == {}


def test_fresh_takes_over_nothing(killed, tmp_path):
    done = ingest(killed, "-o", tmp_path / "out", "--fresh")
    assert done.returncode == 0, done.stderr
    assert "taken over" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_other_options_are_not_taken_for_the_same(killed, sample, tmp_path):
    steps = r"ProfilerStep#\d+"
    done = ingest(killed, "-o", tmp_path / "out", "--steps", steps)
    assert done.returncode == 0, done.stderr
    assert "taken over, not read again: 2\n" in done.stderr
    untouched = ingest(sample, "-o", tmp_path / "untouched", "--steps", steps)
    assert untouched.returncode == 0
    assert differences(tmp_path / "out", tmp_path / "untouched") == {}


def test_interrupted_leaves_nothing_and_terminated_goes_on(captures, tmp_path):
    for number, left in ((signal.SIGINT, 0), (signal.SIGTERM, 1)):
        process = start(captures, "-o", tmp_path / "out", "--workers", "1")
        until(lambda: list(tmp_path.glob(STAGED)), "reading", process)
        process.send_signal(number)
        _, said = process.communicate()
        assert process.returncode == 128 + number
        assert ("is kept" in said) == bool(left)
        assert len(list(tmp_path.iterdir())) == left
