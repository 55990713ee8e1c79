"""The Nsight Systems reader: odd and broken content."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from gapscope.errors import GapscopeError
from gapscope.ingest import nsys_tables

from .nsys_export import Read, big_export, full_export, global_pid, kernel, write_sqlite


def test_wrong_types_are_counted(tmp_path: Path, read: Read) -> None:
    tables = full_export()
    tables["CUPTI_ACTIVITY_KIND_KERNEL"] = [
        kernel(100, 200),
        kernel("soon", 200),
        kernel(None, 300),
        kernel(300, 400.0, deviceId="zero"),
        kernel("500", 600, streamId=b"\xff"),
    ]
    result = read(write_sqlite(tmp_path / "odd.sqlite", tables))
    kernels = [row for row in result.rows("gpu_op") if row["kind"] == "kernel"]
    assert [(row["start_ns"], row["end_ns"]) for row in kernels] == [
        (100, 200),
        (300, 400),
        (500, 600),
    ]
    assert [row["device"] for row in kernels] == [0, None, 0]
    assert "2 of CUPTI_ACTIVITY_KIND_KERNEL" in result.quality()["unreadable_rows"][1]
    assert "3 in CUPTI_ACTIVITY_KIND_KERNEL" in result.quality()["unreadable_values"][1]


def test_late_type_changes_and_late_values(
    tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The bulk reader infers types from its first batch: what follows must not surprise it.
    monkeypatch.setattr(nsys_tables, "BATCH_ROWS", 8)
    monkeypatch.setattr(nsys_tables, "SALVAGE_ROWS", 5)
    tables = full_export()
    tables["CUPTI_ACTIVITY_KIND_KERNEL"] = [kernel(k, k + 1) for k in range(50)]
    tables["CUPTI_ACTIVITY_KIND_KERNEL"][20]["start"] = "broken"
    tables["CUPTI_ACTIVITY_KIND_KERNEL"][30]["graphNodeId"] = 77
    nvtx = {"eventType": 59, "globalTid": global_pid(7) | 9, "domainId": 0}
    tables["NVTX_EVENTS"] = [
        {"start": k, "end": k + 1, **nvtx, "text": None, "textId": 4} for k in range(40)
    ] + [
        {
            "start": 40,
            "end": 41,
            **nvtx,
            "text": "late \N{GREEK SMALL LETTER MU}",
            "textId": None,
        }
    ]
    result = read(write_sqlite(tmp_path / "late.sqlite", tables))
    kernels = [row for row in result.rows("gpu_op") if row["kind"] == "kernel"]
    assert [row["start_ns"] for row in kernels] == [k for k in range(50) if k != 20]
    assert [row["graph_node_id"] for row in kernels if row["graph_node_id"]] == [77]
    assert result.names("range") == ["ncclAllReduce"] * 40 + ["late \N{GREEK SMALL LETTER MU}"]


def test_text_that_is_not_utf8(tmp_path: Path, read: Read) -> None:
    path = write_sqlite(tmp_path / "bytes.sqlite", full_export())
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE NVTX_EVENTS SET text = CAST(x'61ff62' AS TEXT) WHERE start = 10")
        connection.execute("UPDATE StringIds SET value = CAST(x'61ff63' AS TEXT) WHERE id = 1")
    connection.close()
    result = read(path)
    assert result.names("range")[0] == "a\ufffdb"
    assert result.names("gpu_op")[0] == "a\ufffdc"


def test_unknown_nvtx_types_are_counted(tmp_path: Path, read: Read) -> None:
    tables = full_export()
    tables["NVTX_EVENTS"].append({**tables["NVTX_EVENTS"][2], "eventType": 12345})
    result = read(write_sqlite(tmp_path / "e.sqlite", tables))
    assert result.quality()["nvtx_other"][1] == "1 NVTX events of type 12345 not kept"


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.99])
def test_cut_file(share: float, tmp_path: Path, read: Read) -> None:
    path = write_sqlite(tmp_path / "cut.sqlite", big_export())
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    try:
        result = read(path)
    except GapscopeError as error:
        assert error.slug in ("corrupt-export", "not-an-nsys-export", "no-cuda-trace")
        assert "cut.sqlite" in error.message
        assert error.hint
        return
    quality = result.quality()
    assert quality["truncated_file"][0] == "fail"
    assert quality["corrupt_table"][0] == "fail"
    assert 0 < len(result.rows("gpu_op")) < 20_000 + 4


@pytest.mark.parametrize("seed", range(10))
def test_damaged_pages(seed: int, tmp_path: Path, read: Read) -> None:
    path = write_sqlite(tmp_path / "damaged.sqlite", big_export())
    data = bytearray(path.read_bytes())
    chance = random.Random(seed)
    for _ in range(5):
        at = chance.randrange(4096, len(data) - 512)
        data[at : at + 512] = chance.randbytes(512)
    path.write_bytes(data)
    try:
        read(path)
    except GapscopeError as error:
        assert "damaged.sqlite" in error.message
        assert error.hint
