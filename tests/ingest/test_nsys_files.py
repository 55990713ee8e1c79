"""The Nsight Systems reader: parquetdir, gzip, reports, and what lies beside them."""

from __future__ import annotations

import gzip
import os
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gapscope.errors import GapscopeError
from gapscope.ingest.nsys import NsysReader
from gapscope.ingest.nsys_tables import ParquetSource

from .nsys_export import Read, Result, big_export, full_export, write_parquetdir, write_sqlite


def test_parquetdir_gives_the_same_rows(tmp_path: Path, read: Read, full: Result) -> None:
    folder = write_parquetdir(tmp_path / "export", full_export())
    assert NsysReader.probe(folder)
    result = read(folder)
    assert result.all_rows() == full.all_rows()
    assert result.info == full.info


def test_parquetdir_types(tmp_path: Path) -> None:
    folder = tmp_path / "types"
    folder.mkdir()
    table = pa.table(
        {
            "a": pa.array([1, 2**64 - 1], pa.uint64()),
            "b": pa.array([1, None], pa.uint32()),
            "c": pa.array(["x", ""]).dictionary_encode(),
            "d": pa.array(["12", "no"]),
            "e": pa.array([1, 2], pa.int32()),
        }
    )
    pq.write_table(table, folder / "T.parquet")
    source = ParquetSource(folder)
    (batch,) = source.batches("T", {**dict.fromkeys("abd", "int"), "c": "text", "e": "float"})
    assert batch.to_pydict() == {
        "a": [1, None],
        "b": [1, None],
        "d": [12, None],
        "c": ["x", None],
        "e": [1.0, 2.0],
    }
    assert source.bad_values == {"T": 1}
    source.close()


def test_broken_parquet_file_is_a_quality_row(tmp_path: Path, read: Read) -> None:
    folder = write_parquetdir(tmp_path / "export", full_export())
    (folder / "NVTX_EVENTS.parquet").write_bytes(b"PAR1 not really")
    result = read(folder)
    assert "NVTX_EVENTS" in result.quality()["corrupt_table"][1]
    assert str(tmp_path) not in result.raw_text()
    assert len(result.rows("gpu_op")) == 5


def test_gzip(tmp_path: Path, read: Read, full: Result) -> None:
    packed = tmp_path / "full.sqlite.gz"
    packed.write_bytes(gzip.compress((tmp_path / "full.sqlite").read_bytes()))
    assert NsysReader.probe(packed)
    assert read(packed).all_rows() == full.all_rows()


def test_cut_gzip(tmp_path: Path, read: Read) -> None:
    data = gzip.compress(write_sqlite(tmp_path / "big.sqlite", big_export()).read_bytes())
    packed = tmp_path / "cut.sqlite.gz"
    packed.write_bytes(data[: len(data) * 9 // 10])
    try:
        assert read(packed).quality()["truncated_gzip"][0] == "fail"
    except GapscopeError as error:
        assert "cut.sqlite.gz" in error.message


def test_input_and_its_folder_stay_untouched(tmp_path: Path, read: Read) -> None:
    folder = tmp_path / "in # put?100%"
    folder.mkdir()
    path = write_sqlite(folder / "a b.sqlite", full_export())
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    before = (path.read_bytes(), path.stat().st_mtime_ns, sorted(folder.iterdir()))
    folder.chmod(0o555)
    path.chmod(0o444)
    try:
        assert NsysReader.probe(path)
        assert len(read(path).rows("gpu_op")) == 5
        assert (
            path.read_bytes(),
            path.stat().st_mtime_ns,
            sorted(folder.iterdir()),
        ) == before
    finally:
        folder.chmod(0o755)


def test_unfinished_log_beside_the_file(tmp_path: Path, read: Read) -> None:
    path = write_sqlite(tmp_path / "live.sqlite", full_export())
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("UPDATE StringIds SET value = 'late name' WHERE id = 1")
    writer.commit()
    wal = path.with_name("live.sqlite-wal")
    before = (path.read_bytes(), wal.read_bytes())
    result = read(path)
    assert result.names("gpu_op")[0] == "late name"
    assert "-wal" in result.quality()["unfinished_database"][1]
    assert (path.read_bytes(), wal.read_bytes()) == before
    writer.close()


def test_temporary_files_are_removed(
    tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    packed = tmp_path / "full.sqlite.gz"
    source = write_sqlite(tmp_path / "source.sqlite", full_export())
    packed.write_bytes(gzip.compress(source.read_bytes()))
    read(packed)
    assert list(scratch.iterdir()) == []


def fails(path: Path, tmp_path: Path) -> GapscopeError:
    with pytest.raises(GapscopeError) as caught:
        Result(path, tmp_path / "unused")
    assert path.name in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


def test_files_that_are_no_export(tmp_path: Path) -> None:
    empty = tmp_path / "empty.sqlite"
    empty.touch()
    assert not NsysReader.probe(empty)
    assert fails(empty, tmp_path).slug == "empty-file"

    text = tmp_path / "text.sqlite"
    text.write_text("hello")
    assert not NsysReader.probe(text)
    assert fails(text, tmp_path).slug == "not-a-database"

    other = write_sqlite(tmp_path / "other.sqlite", {"users": [{"name": "x"}]})
    assert not NsysReader.probe(other)
    assert fails(other, tmp_path).slug == "not-an-nsys-export"

    bare = write_sqlite(tmp_path / "bare.sqlite", {"META_DATA_EXPORT": [{"name": "x"}]})
    assert NsysReader.probe(bare)
    assert fails(bare, tmp_path).slug == "no-cuda-trace"

    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"SQLite format 3\0" + bytes(84) + b"\xff" * 1000)
    assert fails(broken, tmp_path).slug == "corrupt-export"

    folder = write_parquetdir(tmp_path / "folder", {"users": [{"name": "x"}]})
    assert not NsysReader.probe(folder)
    assert fails(folder, tmp_path).slug == "not-an-nsys-export"

    missing = tmp_path / "missing.sqlite"
    assert not NsysReader.probe(missing)
    assert fails(missing, tmp_path).slug == "cannot-read"


def test_report_without_the_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "run 1.nsys-rep"
    report.write_bytes(b"report")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert NsysReader.probe(report)
    error = fails(report, tmp_path)
    assert error.slug == "nsys-not-found"
    assert f"nsys export --type sqlite --force-overwrite true --output '{tmp_path}" in error.hint


def fake_nsys(tmp_path: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    tool = tools / "nsys"
    tool.write_text(f"#!/bin/sh\n{body}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")


def test_report_is_exported_away_from_the_input(
    tmp_path: Path, read: Read, full: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = tmp_path / "full.sqlite"
    # Arguments: export --type sqlite --force-overwrite true --output TARGET REPORT
    fake_nsys(tmp_path, f'cp "{export}" "$7"', monkeypatch)
    folder = tmp_path / "reports"
    folder.mkdir()
    report = folder / "run.nsys-rep"
    report.write_bytes(b"report")
    assert read(report).all_rows() == full.all_rows()
    assert list(folder.iterdir()) == [report]


def test_report_that_does_not_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nsys(tmp_path, "exit 3", monkeypatch)
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"report")
    error = fails(report, tmp_path)
    assert error.slug == "nsys-export-failed"
    assert "code 3" in error.message
