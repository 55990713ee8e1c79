"""`--cluster`: a real scheduler and worker processes, one of them killed in the middle."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import Future
from pathlib import Path

import pytest

from gapscope.errors import GapscopeError
from gapscope.ingest.cluster import _hand_on
from gapscope.ingest.workplace import GOES_ON
from gapscope.schema.tables import TABLES
from tests.cluster.conftest import CAPTURES, ROOT_FILES, ingest, start, until
from tests.cluster.same import differences
from tests.hostile.conftest import assert_one_error


def test_same_run_although_a_worker_is_killed(captures, local_run, three_workers, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    out = place / "out"
    process = start(captures, "-o", out, "--cluster", three_workers.address, "--json")
    # A try that has files and no record: somebody is in the middle of it.
    until(lambda: list(place.glob(".out.tmp-*/staging/*/*/*.parquet")), "reading", process)
    three_workers.workers[0].kill()
    said, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    rows = json.loads(said)["rows"]
    assert sorted(map(int, rows)) == list(range(CAPTURES))
    assert all(set(counts) == set(TABLES) for counts in rows.values())
    assert differences(local_run, out) == {}
    assert [path.name for path in place.iterdir()] == ["out"]
    assert {path.name for path in out.iterdir()} == ROOT_FILES
    assert [worker.poll() is None for worker in three_workers.workers] == [False, True, True]


def test_one_bad_capture_loses_only_its_rank(sample, three_workers, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for file in sample.glob("*.gz"):
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "bad.json").write_text('{"traceEvents": [{"ph": "X", "na', encoding="utf-8")
    done = ingest(folder, "-o", tmp_path / "out", "--cluster", three_workers.address, "--json")
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert sorted(content["rows"]) == ["0", "1"]
    failed = [row["check_name"] for row in content["quality"] if row["status"] == "fail"]
    assert failed == ["source_failed:bad.json"]


def test_nobody_answers(sample, tmp_path):
    pytest.importorskip("distributed", reason="`gapscope[cluster]` is not installed")
    done = ingest(sample, "-o", tmp_path / "out", "--cluster", "tcp://127.0.0.1:9")
    assert_one_error(done, "cluster-unreachable")
    assert list(tmp_path.iterdir()) == []


def test_a_worker_with_another_gapscope_is_refused(sample, cluster, tmp_path):
    root = Path(__file__).resolve().parents[2]
    other = tmp_path / "other"
    other.mkdir()
    for name in ("gapscope", "sql", "reports"):
        shutil.copytree(root / name, other / name)
    shutil.copy(root / "pyproject.toml", other)
    with (other / "gapscope" / "ingest" / "stage.py").open("a") as file:
        file.write("# another\n")
    cluster.add_worker(other, PYTHONPATH=str(other))
    done = ingest(sample, "-o", tmp_path / "out", "--cluster", cluster.address)
    assert_one_error(done, "cluster-version")
    assert "another gapscope, DuckDB or pyarrow" in done.stderr
    assert not (tmp_path / "out").exists()


def test_workers_of_this_machine_are_no_workers_of_a_cluster(sample, tmp_path):
    done = ingest(
        sample, "-o", tmp_path / "out", "--cluster", "tcp://127.0.0.1:9", "--workers", "2"
    )
    assert_one_error(done, "usage")


def test_a_scheduler_that_goes_away_ends_the_ingest(captures, three_workers, tmp_path):
    process = start(captures, "-o", tmp_path / "out", "--cluster", three_workers.address)
    finished = ".out.tmp-*/staging/*/*/finished.json"
    until(lambda: list(tmp_path.glob(finished)), "reading", process)
    three_workers.scheduler.kill()
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "the same command goes on from it" in said
    assert "error[cluster-lost]: " in said


def test_a_rank_that_kills_its_workers_is_said():
    distributed = pytest.importorskip("distributed", reason="`gapscope[cluster]` is not installed")
    inner: Future[None] = Future()
    outcome: Future[None] = Future()
    inner.set_exception(distributed.KilledWorker("stage", None, 3))
    _hand_on(outcome, inner)
    error = outcome.exception()
    assert isinstance(error, GapscopeError)
    assert error.slug in GOES_ON
    assert "died" in error.message
    assert error.hint
