"""A traced FSDP2 training, ingested: its labels, collectives, steps, groups and clocks as a run has them.

CPU has no device ops, so that an NCCL kernel is put behind every collective, late by a known time.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from gapscope.ingest import instrument, pipeline
from gapscope.instrument import record, voice
from tests.instrument.conftest import Rank, Trained

U64, U32, U16, U8, I64 = pa.uint64(), pa.uint32(), pa.uint16(), pa.uint8(), pa.int64()
KERNELS = {
    "all_gather": "ncclDevKernel_AllGather_RING_LL",
    "reduce_scatter": "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL",
    "all_reduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
}
SMALL = ("graph_node", "graph", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


def write(path: Path, rows: list[dict[str, Any]], **types: pa.DataType) -> None:
    schema = pa.schema(types)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as stream:
        stream.write_table(pa.Table.from_pylist(rows, schema))


def with_kernels(rank: Rank, place: Path) -> Path:
    """A copy of the process's streams, with a launch in every collective and its kernel behind it."""
    shutil.copytree(rank.directory, place / rank.directory.name)
    directory = place / rank.directory.name
    names = rank.table("name")
    first = max(row["id"] for row in names) + 1
    ids = {text: first + i for i, text in enumerate([*KERNELS.values(), "cudaLaunchKernelExC"])}
    names += [{"id": i, "text": text} for text, i in ids.items()]
    threads = {row["tid"]: row["id"] for row in rank.table("thread")}
    kernels, calls = [], []
    for number, one in enumerate(rank.ours("collective ")):
        launched = one.start_ns + (one.end_ns - one.start_ns) // 2
        where = {"correlation": number + 1, "thread": threads[one.tid], "call": 0}
        calls.append({"start_ns": launched, "end_ns": launched + 1, **where})
        kernels.append(
            {
                **dict.fromkeys(SMALL, 0),
                "start_ns": launched + 1000,
                "end_ns": launched + 2000,
                "name": ids[KERNELS[one.said["type"]]],
                "correlation": number + 1,
                "context": 1,
                "stream": 7,
                "channel": 0,
                "device": 0,
            }
        )
    times = {"start_ns": I64, "end_ns": I64}
    write(directory / "name.arrows", names, id=U32, text=pa.string())
    call = [{"id": 0, "domain": 0, "name": ids["cudaLaunchKernelExC"], "return_code": 0}]
    write(directory / "call.arrows", call, id=U16, domain=U8, name=U32, return_code=U32)
    context = [{"context": 1, "device": 0, "null_stream": 7}]
    write(directory / "context.arrows", context, context=U32, device=U32, null_stream=U32)
    write(directory / "api.arrows", calls, **times, correlation=U32, thread=U16, call=U16)
    place_of = {"correlation": U32, "context": U32, "stream": U32, "graph_node": U64, "graph": U32}
    sizes = {"grid_x": U32, **dict.fromkeys(SMALL[3:], U16)}
    more = {"name": U32, **place_of, **sizes, "channel": U16, "device": U8}
    write(directory / "kernel.arrows", kernels, **times, **more)
    return directory


@pytest.fixture
def ingest(tmp_path: Path) -> Callable[[Trained], duckdb.DuckDBPyConnection]:
    """The scenario's ranks, with kernels, as a run."""

    def run(trained: Trained) -> duckdb.DuckDBPyConnection:
        for rank in trained.ranks:
            with_kernels(rank, tmp_path / "trace")
        out = pipeline.ingest([tmp_path / "trace"], tmp_path / "out.run", workers=1).out
        return duckdb.connect(str(out / "run.duckdb"), read_only=True)

    return run


@pytest.mark.parametrize("scenario", ["plain", "hybrid"])
def test_a_run_of_it(
    train: Callable[[str], Trained],
    ingest: Callable[[Trained], duckdb.DuckDBPyConnection],
    scenario: str,
):
    trained = train(scenario)
    con = ingest(trained)

    def column(sql: str) -> list[Any]:
        return [row[0] for row in con.sql(sql).fetchall()]

    # Every label is found, and torch's own words decide what it is.
    for number, rank in enumerate(trained.ranks):
        labels = [r for r in rank.ours("") if r.text.startswith(("FSDP::", "Optimizer."))]
        assert column(f"SELECT count(*) FROM v1.fsdp_label WHERE rank = {number}") == [len(labels)]
    units = column("SELECT DISTINCT unit FROM v1.fsdp_label ORDER BY unit")
    assert units == ["", "layers.0", "layers.1", "layers.2"]

    # Every kernel has its group and number, and finds its fellows on the other ranks by them.
    total = sum(len(rank.ours("collective ")) for rank in trained.ranks)
    matched = "SELECT count(*) FROM v1.collective_match WHERE is_matched AND seq IS NOT NULL"
    assert column(matched) == [total]
    assert column("SELECT count(*) FROM v1.collective_op WHERE seq IS NULL") == [0]
    sizes = "SELECT DISTINCT group_size FROM v1.collective_match"
    assert column(sizes) == [2]
    nodes = set(column("SELECT DISTINCT node_kind FROM v1.op_unit"))
    assert nodes == {"AG", "RS", "AR"} if scenario == "hybrid" else nodes == {"AG", "RS"}

    # Steps are the instrument's.
    steps = con.sql(
        "SELECT rank, source, count(*) FROM v1.step GROUP BY ALL ORDER BY rank"
    ).fetchall()
    assert steps == [(r, "gapscope_step", 3) for r in range(len(trained.ranks))]

    # One host, one clock.
    clocks = con.sql("SELECT offset_ns, method FROM v1.rank_clock").fetchall()
    assert clocks == [(0, "clock exchange")] * len(trained.ranks)

    groups = con.sql("SELECT DISTINCT group_ranks FROM v1.process_group ORDER BY ALL").fetchall()
    expected = ["[0, 1]", "[0, 2]", "[1, 3]", "[2, 3]"] if scenario == "hybrid" else ["[0, 1]"]
    assert groups == [(ranks,) for ranks in expected]
    told = con.sql(
        "SELECT unit, elements, shard_size, replicate_size, reshard_size, reduce_inputs, param_dtype "
        "FROM v1.fsdp_group WHERE rank = 1 ORDER BY root, ordinal LIMIT 2"
    ).fetchall()
    copies = 2 if scenario == "hybrid" else None
    # The root stays unsharded between forward and backward.
    assert told == [("", 372, 2, copies, 1, 1, None), ("layers.0", 1072, 2, copies, 2, 1, None)]

    quality = "SELECT DISTINCT status FROM v1.capture_quality WHERE check_name = 'instrument'"
    assert column(quality) == ["ok"]


def test_the_reader_knows_the_words_of_the_instrument():
    assert (instrument.DOMAIN, instrument.FILE) == (voice.DOMAIN, record.FILE)
    assert instrument.FORMAT == record.FORMAT


class Written:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, Any]] = {}
        self.notes: dict[str, tuple[Any, ...]] = {}

    def write(self, table: str, columns: dict[str, Any]) -> None:
        self.tables[table] = columns

    def quality(self, check_name: str, *rest: Any) -> None:
        self.notes[check_name] = rest


def read_record(place: Path, text: bytes) -> Written:
    (place / instrument.FILE).write_bytes(text)
    sink = Written()
    instrument.write_record(place, sink)
    return sink


HEAD = {"format": instrument.FORMAT}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"null",
        b'{"format": "other/1"}',
        b"[" * 100_000,
        b'{"format": 1}',
    ],
)
def test_a_record_that_cannot_be_read_is_said(tmp_path: Path, text: bytes):
    sink = read_record(tmp_path, text)
    assert sink.notes["instrument"][0] == "warn"
    assert sink.tables == {}


@pytest.mark.parametrize(
    "odd",
    [
        {"groups": {"a": 1}, "roots": 7, "clock": [], "faults": [], "steps": None},
        {
            "groups": [1, {"name": 5}, {"name": "/home/x"}, {"name": "x" * 2000}],
            "clock": {"samples": 1},
        },
        {"clock": {"samples": [{"at_ns": 2**70, "offset_ns": 0, "uncertainty_ns": 0}, None, {}]}},
        {
            "clock": {
                "samples": [{"at_ns": True, "offset_ns": 1.5, "uncertainty_ns": "x"}],
                "notes": 3,
            }
        },
        {"clock": {"samples": [{"at_ns": 1, "offset_ns": 2, "uncertainty_ns": -3}], "rank": False}},
        {
            "roots": [
                {"units": [{"unit": "/home/x", "elements": -1.5, "forward_prefetch": {"a": 1}}]}
            ]
        },
        {"faults": {"/etc/passwd": 1}, "torch": "a\nb", "roots": [{"units": [None]}]},
    ],
)
def test_odd_members_are_left_out(tmp_path: Path, odd: dict[str, Any]):
    sink = read_record(tmp_path, json.dumps(HEAD | odd).encode())
    assert sink.tables["process_group"]["group_name"] == []
    assert sink.tables["clock_anchor"]["ts_ns"] == []
    assert "/" not in str(sink.notes) + str(sink.tables)


def clock_rows(place: Path, **clock: Any) -> list[tuple[int, ...]]:
    anchors = read_record(place, json.dumps(HEAD | {"clock": clock}).encode()).tables[
        "clock_anchor"
    ]
    return list(zip(anchors["ts_ns"], anchors["value_ns"], anchors["uncertainty_ns"], strict=True))


def test_readings_of_another_host_stand_as_measured(tmp_path: Path):
    sample = {"at_ns": 1000, "offset_ns": -300, "uncertainty_ns": 40}
    assert clock_rows(tmp_path, rank=1, boot="a", reference_boot="b", samples=[sample]) == [
        (1000, 700, 40)
    ]


def test_readings_of_one_host_are_exact_where_they_may_be(tmp_path: Path):
    near = {"at_ns": 1000, "offset_ns": -30, "uncertainty_ns": 40}
    # A container may have a clock of its own.
    far = {"at_ns": 2000, "offset_ns": -3000, "uncertainty_ns": 40}
    assert clock_rows(tmp_path, rank=1, boot="a", reference_boot="a", samples=[near, far]) == [
        (1000, 1000, 0),
        (2000, -1000, 40),
    ]


def test_rank_0_is_its_own_reference(tmp_path: Path):
    assert clock_rows(tmp_path, rank=0, boot="a", reference_boot="a", samples=[]) == [(0, 0, 0)]


def test_hooks_that_failed_are_said(tmp_path: Path):
    sink = read_record(tmp_path, json.dumps(HEAD | {"faults": {"KeyError": 3}}).encode())
    assert sink.notes["instrument"][0] == "warn"
    assert "KeyError" in sink.notes["instrument"][1]


@pytest.mark.parametrize(
    "text",
    [
        *("", "collective", "collective {", "collective []", "collective {}", "anchor {}"),
        'collective {"type": 1, "group": "0"}',
        'collective {"type": "all_gather"}',
        'collective {"type": "all_gather", "group": "0", "in": 1e400}'.replace("{", "{" * 3),
    ],
)
def test_texts_that_are_no_collective_make_no_row(text: str):
    ids = pa.array([0, None], pa.int64())
    assert instrument.collective_columns(ids, {0: text}.get, {"seq": ids}) is None


def test_members_of_a_collective_that_are_not_theirs_are_unknown():
    said = {
        "type": "all_gather",
        "group": "0",
        "in": "many",
        "out": 2**70,
        "size": True,
        "ranks": 5,
    }
    texts = {0: "collective " + json.dumps(said), 1: "else"}
    ids = pa.array([0, 1], pa.int64())
    columns = instrument.collective_columns(ids, texts.get, {"seq": ids})
    read = {name: column.to_pylist()[0] for name, column in columns.items()}
    assert read.pop("seq") == 0
    assert {name for name, value in read.items() if value is not None} == {"group_name", "type"}
