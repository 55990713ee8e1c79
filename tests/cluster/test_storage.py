"""Captures and runs behind URLs: an S3 server process on loopback."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gapscope import remote
from gapscope.cli.ingest import _kept_where_it_was_made
from gapscope.errors import GapscopeError
from tests.cluster.conftest import KEY_ID, SECRET, call, ingest
from tests.cluster.same import differences
from tests.hostile.conftest import assert_one_error


@pytest.fixture
def behind(objects, captures):
    """The captures as objects, beside one that is none, one that hides, and one of another kind."""
    for file in captures.iterdir():
        objects.put_file(str(file), f"traces/day1/{file.name}")
    objects.pipe_file("traces/day1/settings.json", b'{"not": "a capture"}')
    objects.pipe_file("traces/day1/.hidden.json", b"{}")
    objects.pipe_file("traces/day1/notes.txt", b"none")
    return objects


def test_from_storage_to_storage(behind, storage, local_run, three_workers_with_storage, tmp_path):
    url = "s3://traces/runs/one.run"
    shared = tmp_path / "shared"
    shared.mkdir()
    variables = storage.variables | {"TMPDIR": str(shared)}
    address = three_workers_with_storage.address
    arguments = ("s3://traces/day1", "-o", url, "--json")
    done = ingest(*arguments, "--cluster", address, **variables)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["run"] == url
    assert list(shared.iterdir()) == []
    names = {
        name.removeprefix("traces/runs/one.run/") for name in behind.find("traces/runs/one.run")
    }
    assert {name.split("/")[0] for name in names} == {path.name for path in local_run.iterdir()}

    fetched = tmp_path / "fetched"
    behind.get("traces/runs/one.run", str(fetched), recursive=True)
    different = differences(local_run, fetched)
    # A note on the two objects that are no captures, and nothing else.
    assert set(different) == {"ingest_note", "capture_quality"}
    assert_no_secret(fetched, done.stdout, done.stderr)

    # A second ingest replaces it only when told to.
    assert_one_error(ingest(*arguments, **variables), "exists")
    report = call("report", url, "-o", tmp_path / "report.md", **variables)
    assert report.returncode == 0, report.stderr
    assert (tmp_path / "report.md").read_text().startswith("# GapScope: one.run\n")
    assert list(shared.iterdir()) == []


def test_an_upload_that_was_cut_off_is_no_run_and_is_replaced(objects, storage, sample):
    url = "s3://traces/cut.run"
    objects.pipe_file("traces/cut.run/data/op/rank=7/data.parquet", b"stale")
    assert_one_error(call("report", url, **storage.variables), "no-run")
    done = ingest(sample, "-o", url, **storage.variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{url}\n"
    assert not objects.exists("traces/cut.run/data/op/rank=7/data.parquet")
    assert objects.exists("traces/cut.run/manifest.json")


@pytest.mark.parametrize(
    "name", ["thesis.tex", "data/thesis.tex", "data/x/rank=0/part.parquet", "run.duckdb/x"]
)
def test_other_objects_are_never_replaced(objects, storage, sample, name):
    objects.pipe_file(f"traces/precious/{name}", b"years of work")
    done = ingest(sample, "-f", "-o", "s3://traces/precious", **storage.variables)
    assert_one_error(done, "not-a-run")
    assert objects.cat_file(f"traces/precious/{name}") == b"years of work"


def test_a_run_that_came_meanwhile_is_not_replaced(objects, local_run):
    objects.pipe_file("traces/late.run/manifest.json", b"another's")
    with pytest.raises(GapscopeError) as refused:
        remote.upload(local_run, "s3://traces/late.run", force=False)
    assert refused.value.slug == "exists"
    assert objects.cat_file("traces/late.run/manifest.json") == b"another's"


def test_two_that_write_at_once_leave_no_run(objects, local_run, monkeypatch):
    put = remote._put

    def put_beside_another(file_system, file, place):
        objects.pipe_file("traces/two.run/data/op/rank=7/data.parquet", b"another's")
        put(file_system, file, place)

    monkeypatch.setattr(remote, "_put", put_beside_another)
    with pytest.raises(GapscopeError) as refused:
        remote.upload(local_run, "s3://traces/two.run", force=False)
    assert refused.value.slug == "remote-changed"
    assert not objects.exists("traces/two.run/manifest.json")


def test_a_run_that_is_replaced_while_it_is_read_is_not_read(
    objects, local_run, tmp_path, monkeypatch
):
    remote.upload(local_run, "s3://traces/moving.run", force=False)
    fetch = remote.fetch

    def fetch_then_replace(url, names, target):
        fetch(url, names, target)
        objects.rm_file("traces/moving.run/manifest.json")

    monkeypatch.setattr(remote, "fetch", fetch_then_replace)
    with pytest.raises(GapscopeError) as refused:
        remote.fetch_run("s3://traces/moving.run", tmp_path / "copy")
    assert refused.value.slug == "remote-changed"


def test_an_upload_that_fails_says_where_the_run_is(tmp_path):
    with pytest.raises(GapscopeError) as refused, _kept_where_it_was_made(tmp_path):
        raise GapscopeError("remote", "the disk of the store is full", "wait")
    assert str(tmp_path) in refused.value.hint


def test_names_that_lead_out_of_their_directory(objects, storage, tmp_path):
    """Keys of an object store are no paths: `..` in them is a name like any other."""
    objects.pipe_file("traces/evil/rank-0/meta.json", b'{"format": "gapscope-trace/1"}')
    boto3 = pytest.importorskip("boto3", reason="moto[server] is not installed")
    client = boto3.client("s3")
    for key in ("../../outside", "../../../../outside", "/absolute.json", "sub/meta.json"):
        client.put_object(Bucket="traces", Key=f"evil/rank-0/{key}", Body=b"gone astray")
    deep = tmp_path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    done = ingest("s3://traces/evil", "-o", tmp_path / "out", **storage.variables, TMPDIR=str(deep))
    assert done.returncode == 2
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


@pytest.mark.parametrize(
    ("url", "slug"),
    [
        ("s3://no-such-bucket/x", "remote"),
        ("s3://traces/nothing", "not-found"),
        (f"s3://{KEY_ID}:{SECRET}@traces/x", "credentials-in-url"),
        (f"s3://traces/x?X-Amz-Signature={SECRET}", "credentials-in-url"),
        (f"S3://{KEY_ID}:{SECRET}@traces/x", "credentials-in-url"),
        (f"simplecache::s3://{KEY_ID}:{SECRET}@traces/x", "bad-url"),
        (f"zip://x.zip::s3://{KEY_ID}:{SECRET}@traces/x", "bad-url"),
        ("gopher://traces/x", "no-fsspec"),
    ],
)
def test_refused_without_a_secret(objects, storage, tmp_path, url, slug):
    done = ingest(url, "-o", tmp_path / "out", **storage.variables, GAPSCOPE_DEBUG="1")
    assert_one_error(done, slug)
    assert_no_secret(tmp_path, done.stdout, done.stderr)


def test_any_file_system_that_fsspec_knows(sample, tmp_path):
    pytest.importorskip("fsspec", reason="`gapscope[cluster]` is not installed")
    folder = shutil.copytree(sample, tmp_path / "in")
    done = ingest(f"file://{folder}", "-o", f"file://{tmp_path}/out.run", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    here = ingest(sample, "-o", tmp_path / "here.run")
    assert here.returncode == 0
    assert differences(tmp_path / "out.run", tmp_path / "here.run") == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here.run", "in", "out.run"]


def assert_no_secret(directory: Path, *texts: str) -> None:
    files = [path.read_bytes() for path in directory.rglob("*") if path.is_file()]
    for content in [*files, *(text.encode() for text in texts)]:
        assert KEY_ID.encode() not in content
        assert SECRET.encode() not in content
