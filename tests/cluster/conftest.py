"""A scheduler with three workers, and an S3 server: real processes, on loopback."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.hostile.captures import kineto, write_kineto
from tests.hostile.conftest import HANG_S, command, environment

DASK_WORKERS = 3
CAPTURES = 5
ROOT_FILES = {"data", "derived", "manifest.json", "run.duckdb"}
# Words that must turn up nowhere.
KEY_ID, SECRET = "canary-key-id-7305", "canary-secret-9184"


@pytest.fixture(scope="session")
def captures(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample's two ranks, and more that are enough work to be in the middle of."""
    folder = tmp_path_factory.mktemp("captures")
    for file in sample.glob("*.gz"):
        shutil.copy(file, folder)
    for rank in range(2, CAPTURES):
        write_kineto(folder / f"{rank}.json", kineto(rank, steps=1_000))
    return folder


@pytest.fixture(scope="session")
def local_run(captures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same captures, ingested by processes of this machine that nobody disturbs."""
    out = tmp_path_factory.mktemp("local") / "local.run"
    done = ingest(captures, "-o", out, "--workers", "2")
    assert done.returncode == 0, done.stderr
    return out


def ingest(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return call("ingest", *arguments, **variables)


def call(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S * 2,
    )


def start(*arguments: str | Path, **variables: str) -> subprocess.Popen[str]:
    """An ingest in a process group of its own, so that it can be killed with its workers."""
    return subprocess.Popen(
        command("ingest", *arguments),
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def until(condition: Callable[[], object], what: str, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + HANG_S
    while not condition():
        assert process.poll() is None, what
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass
class Cluster:
    """A scheduler on loopback, and its workers."""

    address: str
    scheduler: subprocess.Popen[str]
    workers: list[subprocess.Popen[str]] = field(default_factory=list)

    def add_worker(self, directory: Path, **variables: str) -> None:
        # No nanny: a worker that is killed stays dead.
        options = ["--host", "127.0.0.1", "--nthreads", "1", "--no-nanny", "--no-dashboard"]
        self.workers.append(
            background(
                directory, "distributed.cli.dask_worker", self.address, *options, **variables
            )
        )


def background(
    directory: Path, module: str, *arguments: str, **variables: str
) -> subprocess.Popen[str]:
    with (directory / "log").open("a") as log:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=directory,
            env=environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            text=True,
        )


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    pytest.importorskip("distributed", reason="`gapscope[cluster]` is not installed")
    directory = tmp_path_factory.mktemp("dask")
    port = free_port()
    options = ["--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    scheduler = background(directory, "distributed.cli.dask_scheduler", *options)
    one = Cluster(f"tcp://127.0.0.1:{port}", scheduler)
    try:
        until(lambda: answers(port), "the scheduler does not listen", scheduler)
        yield one
    finally:
        for process in [*one.workers, scheduler]:
            process.kill()
            process.wait()


@pytest.fixture
def three_workers(cluster: Cluster, tmp_path: Path) -> Cluster:
    for number in range(DASK_WORKERS):
        directory = tmp_path / f"worker{number}"
        directory.mkdir()
        cluster.add_worker(directory)
    return cluster


@dataclass
class Storage:
    """An S3 server; `variables` lead there and hold what must never be repeated."""

    variables: dict[str, str]


@pytest.fixture(scope="session")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    pytest.importorskip("s3fs", reason="`gapscope[cluster]` is not installed")
    pytest.importorskip("moto.server", reason="moto[server] is not installed")
    port = free_port()
    directory = tmp_path_factory.mktemp("s3")
    server = background(directory, "moto.server", "-H", "127.0.0.1", "-p", str(port))
    variables = {
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }
    try:
        until(lambda: answers(port), "the S3 server does not listen", server)
        yield Storage(variables)
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def objects(storage: Storage, monkeypatch: pytest.MonkeyPatch):
    """The S3 server as this process sees it, with one empty bucket `traces`."""
    import s3fs

    for name, value in storage.variables.items():
        monkeypatch.setenv(name, value)
    file_system = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
    if file_system.exists("traces"):
        file_system.rm("traces", recursive=True)
    file_system.mkdir("traces")
    return file_system


def kill_group(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.fixture
def three_workers_with_storage(cluster: Cluster, storage: Storage, tmp_path: Path) -> Cluster:
    """Workers have credentials of their own: none travel to them."""
    for number in range(DASK_WORKERS):
        directory = tmp_path / f"worker{number}"
        directory.mkdir()
        cluster.add_worker(directory, **storage.variables)
    return cluster
