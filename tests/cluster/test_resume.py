"""An ingest that was killed is gone on with, and the run is that of one that was not killed."""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
from pathlib import Path

import pytest

from gapscope.errors import GapscopeError
from gapscope.ingest import workplace
from gapscope.ingest.landing import landing
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


def test_nobody_goes_on_from_what_is_being_removed(tmp_path, monkeypatch):
    place = workplace.WorkPlace(tmp_path / "out")
    remove, seen = shutil.rmtree, []

    def remove_while_another_looks(path, **options):
        if not seen:
            other = workplace.WorkPlace(tmp_path / "out", adopt=lambda _: 1)
            seen.append(other.path)
            other.leave()
        remove(path, **options)

    monkeypatch.setattr(shutil, "rmtree", remove_while_another_looks)
    place.discard()
    assert seen != [place.path]


def test_a_lock_whose_file_is_gone_is_none(tmp_path, monkeypatch):
    lock, locking = tmp_path / ".lock", fcntl.flock
    lock.touch()

    def lock_when_its_holder_has_gone(descriptor, operation):
        lock.unlink()
        lock.touch()
        locking(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", lock_when_its_holder_has_gone)
    with pytest.raises(FileNotFoundError):
        workplace._locked(lock, create=False)


def test_a_directory_that_a_sweep_holds_is_not_taken(tmp_path, monkeypatch):
    locking, swept = fcntl.flock, []

    def lock_after_a_sweep(descriptor, operation):
        if not swept:
            swept.append((next(tmp_path.glob(".out.tmp-*")) / workplace.LOCK).open())
            locking(swept[0], operation)
        locking(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", lock_after_a_sweep)
    place = workplace.WorkPlace(tmp_path / "out", adopt=lambda _: 0)
    assert place.path != Path(swept[0].name).parent
    swept[0].close()
    place.discard()


def test_one_at_a_time_makes_a_run_for_a_url(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with landing("s3://bucket/run") as place:
        with pytest.raises(GapscopeError) as refused, landing("s3://bucket/run"):
            pass
        assert refused.value.slug == "busy"
        with landing("s3://bucket/other") as other:
            assert other != place
    with landing("s3://bucket/run") as again:
        assert again == place
    assert list(tmp_path.iterdir()) == []


def test_a_run_for_a_url_is_not_made_where_others_may_write(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with landing("s3://bucket/run") as place:
        directory = place.parent
    directory.mkdir()
    directory.chmod(0o777)
    with pytest.raises(GapscopeError) as refused, landing("s3://bucket/run"):
        pass
    assert refused.value.slug == "cannot-write"
