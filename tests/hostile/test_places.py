"""Odd places: links, pipes, devices, permissions, full disks, names that look like code."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from tests.hostile.captures import kineto, write_kineto, write_nsys
from tests.hostile.conftest import (
    HANG_S,
    Attempt,
    Cli,
    assert_one_error,
    command,
    environment,
    listed,
    tree,
)

# --- what is no file ----------------------------------------------------------------------------


def test_pipes_sockets_devices_and_links_are_no_captures(attempt: Attempt, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "nowhere.json").symlink_to("gone")
    listening = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(tmp_path)  # paths of sockets are short
    listening.bind("s.json")
    os.chdir(here)
    for name in ("pipe.json", "loop", "nowhere.json", "s.json", "/dev/null", "/dev/zero"):
        error = attempt(tmp_path / name).error
        assert error is not None
        assert error.slug == "not-a-file", name
    for source, slug in (
        (tmp_path / "gone.json", "not-found"),
        (tmp_path / ("x" * 300), "not-found"),
    ):
        error = attempt(source).error
        assert error is not None
        assert error.slug == slug
    error = attempt(tmp_path).error
    assert error is not None
    assert error.slug == "no-captures"
    write_kineto(tmp_path / "good.json")
    outcome = attempt(tmp_path)
    listening.close()
    assert outcome.error is None
    assert outcome.check("ignored_files")[1].startswith("4 files are no captures")


def test_one_file_by_several_ways_is_one_capture(attempt: Attempt, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    file = write_kineto(folder / "a.json", kineto(rank=None))
    (folder / "b.json").symlink_to("a.json")
    (folder / "again").symlink_to(".")
    outcome = attempt(folder, folder, file, folder / "b.json", tmp_path / "in" / ".." / "in")
    assert outcome.error is None
    assert {rank: rows["gpu_op"] for rank, rows in outcome.rows.items()} == {0: 2}


def test_two_files_of_one_rank(attempt: Attempt, tmp_path: Path) -> None:
    write_kineto(tmp_path / "a.json")
    write_nsys(tmp_path / "b.sqlite")
    error = attempt(tmp_path / "a.json", tmp_path / "b.sqlite").error
    assert error is not None
    assert error.slug == "duplicate-rank"
    assert "`a.json` and `b.sqlite`" in error.message


def test_every_rank_that_is_claimed_twice_is_named(attempt: Attempt, tmp_path: Path) -> None:
    for name, rank in (("a", 0), ("b", 0), ("c", 0), ("d", 3), ("e", 3), ("f", 4)):
        write_kineto(tmp_path / f"{name}.json", kineto(rank=rank))
    error = attempt(tmp_path).error
    assert error is not None
    assert error.slug == "duplicate-rank"
    assert error.message == (
        "`a.json`, `b.json` and `c.json` all claim rank 0; `d.json` and `e.json` both claim rank 3"
    )


# --- permissions --------------------------------------------------------------------------------


def without_privileges() -> None:
    """What makes root an ordinary user towards files: no override of their permissions."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            if libc.prctl(24, capability, 0, 0, 0) != 0:  # PR_CAPBSET_DROP
                raise OSError(ctypes.get_errno(), "prctl")


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips where even without privileges a forbidden file can be read."""
    closed = tmp_path_factory.mktemp("closed") / "x"
    closed.write_text("x")
    closed.chmod(0)
    try:
        done = subprocess.run(
            ["cat", closed], preexec_fn=without_privileges, check=False, capture_output=True
        )
    except subprocess.SubprocessError:
        pytest.skip("root cannot give up its rights here")
    if done.returncode == 0:
        pytest.skip("permissions of files do not bind here")


@pytest.mark.usefixtures("ordinary")
def test_what_may_not_be_read_or_written(cli: Cli, tmp_path: Path) -> None:
    secret = write_kineto(tmp_path / "secret.json")
    write_kineto(tmp_path / "good.json", kineto(1))
    (tmp_path / "listed").mkdir()
    write_kineto(tmp_path / "listed" / "x.json")
    (tmp_path / "mixed").mkdir()
    shutil.copy(tmp_path / "good.json", tmp_path / "mixed" / "good.json")
    shutil.copy(secret, tmp_path / "mixed" / "lost.json")
    before = tree(tmp_path)
    for path, mode in (("secret.json", 0), ("listed", 0o400), ("mixed/lost.json", 0)):
        (tmp_path / path).chmod(mode)
    (tmp_path / "closed").mkdir(mode=0)
    (tmp_path / "fixed").mkdir(mode=0o500)

    def ingest(*arguments: str) -> subprocess.CompletedProcess[str]:
        return cli("ingest", *arguments, cwd=tmp_path, preexec_fn=without_privileges)

    for source in ("secret.json", "closed", "listed"):
        assert_one_error(ingest(source, "-o", "out"), "cannot-read")
    for out in ("fixed/out", "fixed/a/b/out", "good.json/out"):
        assert_one_error(ingest("good.json", "-o", out), "cannot-write")
    done = ingest("mixed", "-o", "out", "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert "source_failed:lost.json" in done.stderr
    for path, mode in (("secret.json", 0o644), ("listed", 0o755), ("mixed/lost.json", 0o644)):
        (tmp_path / path).chmod(mode)
    assert (listed(tmp_path / "fixed")) == []
    for path in ("closed", "fixed"):
        (tmp_path / path).rmdir()
    assert tree(tmp_path, without=(tmp_path / "out",)) == before


@pytest.mark.usefixtures("ordinary")
def test_inputs_in_a_directory_that_cannot_be_written(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write_nsys(folder / "b.sqlite")
    before = tree(folder)
    folder.chmod(0o555)
    done = cli("ingest", folder, "-o", tmp_path / "out", preexec_fn=without_privileges)
    folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert tree(folder) == before


# --- where the run goes -------------------------------------------------------------------------


def test_outputs_that_are_not_ours(attempt: Attempt, tmp_path: Path) -> None:
    source = write_kineto(tmp_path / "a.json")
    out = tmp_path / "out"
    out.write_text("precious")
    for force, slug in ((False, "exists"), (True, "not-a-run")):
        error = attempt(source, force=force).error
        assert error is not None
        assert error.slug == slug
    out.unlink()
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    error = attempt(source, force=True).error
    assert error is not None
    assert error.slug == "not-a-run"
    shutil.rmtree(out)
    out.symlink_to("elsewhere")
    for force, slug in ((False, "exists"), (True, "not-a-run")):
        error = attempt(source, force=force).error
        assert error is not None
        assert error.slug == slug
    out.unlink()


def test_failed_ingest_leaves_the_old_run(attempt: Attempt, tmp_path: Path) -> None:
    good = write_kineto(tmp_path / "good.json")
    assert attempt(good).error is None
    (tmp_path / "bad.json").write_bytes(b'{"traceEvents": [{')
    tables = {"CUPTI_ACTIVITY_KIND_KERNEL": [{"start": None}]}
    write_nsys(tmp_path / "bad.sqlite", tables)
    for bad in ("bad.json", "gone.json"):
        assert attempt(tmp_path / bad, force=True).error is not None
    assert attempt(good, force=True, ranks={"other.json": 1}).error is not None
    assert attempt(good, force=True, steps="(").error is not None
    assert attempt(good, force=True, ranks={"good.json": 2**40}).error is not None
    assert attempt(good, force=True).error is None


def test_run_inside_its_own_input(here: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write_kineto(folder / "a.json")
    for more in ([], ["-f"]):
        done = here("ingest", ".", "-o", "run", "--json", "--workers", "1", *more, cwd=folder)
        assert done.returncode == 0, done.stderr
        assert '"0"' in done.stdout
        assert '"1"' not in done.stdout
        assert (listed(folder)) == ["a.json", "run"]
    assert_one_error(here("ingest", "run", "-o", "other", cwd=folder), "no-captures")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() != 0 or libc.mount(b"none", bytes(disk), b"tmpfs", 0, b"size=256k") != 0:
        pytest.skip("cannot mount a small file system here")
    yield disk
    libc.umount2(bytes(disk), 2)


def test_full_disk(cli: Cli, small_disk: Path, sample: Path) -> None:
    for workers in ("1", "2"):
        done = cli("ingest", sample, "-o", small_disk / "run", "--workers", workers)
        assert_one_error(done, "cannot-write")
        assert listed(small_disk) == []


def test_file_size_limit(cli: Cli, sample: Path, tmp_path: Path) -> None:
    import resource

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = cli("ingest", sample, "-o", tmp_path / "run", "--workers", "1", preexec_fn=limited)
    assert_one_error(done, "cannot-write")
    assert listed(tmp_path) == []


# --- names --------------------------------------------------------------------------------------

NAMES = [
    "it's; DROP TABLE rank; --",
    'a"b$(id)`id`',
    "a*[b]c#é✓",
    "new\nline\ttab",
    "\x1b[31mred",
    "rank=7",
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_names_are_only_names(here: Cli, tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    write_kineto(folder / f"{name}.json", kineto(rank=3))
    # What a pattern could match by mistake.
    (tmp_path / "aXbc#é✓" / f"{name}.run").mkdir(parents=True)
    done = here("ingest", folder, "-o", folder / f"{name}.run", "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stderr
    assert (listed(folder)) == sorted([f"{name}.json", f"{name}.run"])
    moved = folder / "moved.run"
    (folder / f"{name}.run").rename(moved)
    rows = here("sql", moved, "-c", "SELECT rank, count(*) AS n FROM op WHERE rank = 3 GROUP BY 1")
    assert rows.stdout.split()[-2:] == ["3", "2"], rows.stderr
    assert here("ingest", "--relink", moved).returncode == 0
    import duckdb

    with duckdb.connect(str(moved / "run.duckdb"), read_only=True) as con:
        assert con.execute("SELECT rank, count(*) FROM op GROUP BY 1").fetchall() == [(3, 2)]


def test_names_that_cannot_be(here: Cli, tmp_path: Path) -> None:
    write_kineto(tmp_path / "a.json")
    for out, slug in (
        ("back\\slash", "bad-path"), ("what?.run", "bad-path"), (b"\xff.run".decode("utf-8", "surrogateescape"), "bad-path"),
        ("x" * 300, "cannot-write"),
    ):  # fmt: skip
        assert_one_error(here("ingest", "a.json", "-o", out, cwd=tmp_path), slug)
    assert listed(tmp_path) == ["a.json"]


def test_inputs_with_long_names_and_no_utf8(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write_kineto(folder / ("x" * 250 + ".json"), kineto(0))
    write_kineto(Path(os.fsdecode(os.fsencode(folder) + b"/\xff.json")), kineto(1))
    done = cli("ingest", folder, "-o", tmp_path / ("r" * 255), "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert (listed(tmp_path)) == ["in", "r" * 255]


# --- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        ["--rank", "a.json"], ["--rank", "=1"], ["--rank", "a.json="], ["--rank", "a.json=-1"],
        ["--rank", "a.json=x"], ["--rank", "a.json=²"], ["--rank", "a.json=99999999999999999999"],
        ["--rank", "a.json=4000000000"], ["--rank", "a.json=1", "--rank", "a.json=2"],
        ["--rank", "b.json=1"], ["--steps", "("], ["--steps", "[z-a]"], ["--steps", "(?<=x)y"],
        ["--memory-limit", "lots"], ["--workers", "0"], ["--workers", "x"], ["--nonsense"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_options_that_make_no_sense(
    tmp_path: Path,
    options: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from gapscope.cli.app import run

    write_kineto(tmp_path / "a.json")
    monkeypatch.chdir(tmp_path)
    code = run(["ingest", "a.json", "-o", "out", *options])
    said = capsys.readouterr()
    assert_one_error(subprocess.CompletedProcess([], code, said.out, said.err))
    assert listed(tmp_path) == ["a.json"]


def test_patterns_that_explode_elsewhere(attempt: Attempt, tmp_path: Path) -> None:
    trace = kineto()
    trace["traceEvents"] += [
        {**trace["traceEvents"][1], "name": "a" * 5_000 + "!"} for _ in range(50)
    ]
    outcome = attempt(write_kineto(tmp_path / "a.json", trace), steps="(a|aa|a*)*(a+)+$")
    # Answered in linear time: no range ends in `a`.
    assert outcome.error is not None
    assert outcome.error.slug == "no-such-steps"


def test_broken_pipe_is_silent(tiny_run: Path) -> None:
    pipeline = " ".join(
        f"'{part}'" for part in command("sql", tiny_run, "-c", "SELECT * FROM range(300000)")
    )
    done = subprocess.run(
        ["bash", "-c", f"{pipeline} | head -1"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.strip() == "range"


def test_a_pattern_leaves_the_callers_own_duckdb_free(attempt: Attempt, tmp_path: Path) -> None:
    assert attempt(write_kineto(tmp_path / "a.json"), steps="nothing like it").error is not None
    assert duckdb.sql(f"COPY (SELECT 1) TO '{tmp_path}/one.parquet'").fetchall() == [(1,)]
