"""A simulated trace is a trace: ingested, it says what the run of the same SPEC says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import gapscope
from gapscope.errors import GapscopeError
from gapscope.ingest.pipeline import ingest
from gapscope.simulate.run import write_run
from gapscope.simulate.streams import COLUMNS
from gapscope.simulate.trace import write_trace

TABLES_CC = Path(__file__).parents[2] / "tracer" / "src" / "tables.cc"
SHARED = """
ranks = 4
steps = 3
[model]
blocks = 2
layers_per_block = 1
"""
LATE = """
[[injection]]
class = "R3"
ranks = [2]
steps = [1]
amount_ms = 8.0
"""
SPECS = {
    "one host, two queues": f'{SHARED}[device]\nqueues = "two"\n{LATE}',
    "hosts whose clocks were compared": (
        f"{SHARED}[clock]\noffset_us = 40_000.0\ndrift_ppb = 300.0\nranks_per_host = 2\n"
        f"exchange_us = 20.0\n{LATE}"
    ),
    "unknown clocks, micro-batches, prefetch": (
        f"{SHARED}micro_batches = 2\nforward_prefetch = 1\nreshard_after_forward = false\n"
        f"[host]\nsync = false\n[clock]\noffset_us = 5_000.0\ndeclared = false\n{LATE}"
    ),
}
# What does not depend on how a source spells its groups and numbers its ops.
SAME = (
    "FROM step_budget",
    "FROM step_gap",
    "FROM rank_clock",
    "FROM what_if",
    "SELECT rank, step_id, start_ns, end_ns, gap_class, sub_cause, node, culprit_rank FROM gap_piece",
    """SELECT rank, step_id, seq - min(seq) OVER (), type, participants, is_matched, start_ns, end_ns
    FROM collective_match""",
    "SELECT rank, start_ns, end_ns, unit, phase, node FROM op INNER JOIN op_unit USING (rank, op_id)",
    "SELECT rank, ts_ns, value_ns, uncertainty_ns FROM clock_anchor WHERE kind = 'rank0'",
)


def rows(run: Path, query: str) -> list[tuple]:
    with gapscope.open_run(run) as opened:
        return opened.sql(f"FROM ({query}) ORDER BY ALL").rows()


@pytest.mark.parametrize("name", SPECS)
def test_the_run_of_a_trace_is_that_of_its_spec(tmp_path: Path, name: str):
    spec = tmp_path / "spec.toml"
    spec.write_text(SPECS[name])
    direct = write_run(spec, tmp_path / "direct.run", workers=1).out
    assert write_trace(spec, tmp_path / "trace", workers=1) == 4
    traced = ingest([tmp_path / "trace"], tmp_path / "traced.run", workers=1).out
    for query in SAME:
        said = rows(traced, query)
        assert said == rows(direct, query), query
        assert said or "clock_anchor" in query
    assert (len(rows(traced, SAME[-1])) > 0) == ("exchange_us" in SPECS[name])
    noted = "SELECT check_name, detail FROM capture_quality WHERE status NOT IN ('ok', 'info')"
    assert rows(traced, noted) == rows(direct, noted)
    assert rows(traced, "SELECT sum(failed_count) FROM audit_result") == [(0,)]
    forbidden = "SELECT forbids FROM capture_quality WHERE check_name = 'simulated'"
    assert rows(traced, forbidden) == [("anything about a real machine",)] * 4
    # The truth lies beside, row for row that of the run.
    for table in ("simulated_truth", "simulated_clock"):
        beside = f"FROM '{tmp_path / 'trace' / table}.parquet'"
        assert duckdb.sql(f"{beside} ORDER BY ALL").fetchall() == rows(direct, f"FROM {table}")
    units = rows(traced, "SELECT unit, reshard_size FROM fsdp_group WHERE rank = 0")
    resharded = 1 if "reshard_after_forward" in SPECS[name] else 4
    assert units == [("", 1), ("blocks.0", resharded), ("blocks.1", resharded)]


def test_workers_write_what_one_process_writes(tmp_path: Path):
    spec = tmp_path / "spec.toml"
    spec.write_text("ranks = 9\nsteps = 1\n[model]\nblocks = 1\nlayers_per_block = 1\n")
    for workers in (1, 2):
        write_trace(spec, tmp_path / str(workers), workers=workers)
    files = sorted(one.relative_to(tmp_path / "1") for one in (tmp_path / "1").rglob("*.*"))
    assert sum(file.name == "kernel.arrows" for file in files) == 9
    for file in files:
        assert (tmp_path / "1" / file).read_bytes() == (tmp_path / "2" / file).read_bytes()
    # Nothing of the work is left.
    assert sorted(one.name for one in tmp_path.iterdir()) == ["1", "2", "spec.toml"]
    assert not list((tmp_path / "1").glob(".*"))


def test_streams_are_those_of_the_tracer(tmp_path: Path):
    """Columns as tables.cc declares them; the files hold a batch a step."""
    tables = re.findall(r'GAPSCOPE_TABLE\(k\w+, "(\w+)",(.*?)\);', TABLES_CC.read_text(), re.DOTALL)
    kinds = {"I64": "int64", "U64": "uint64", "I32": "int32", "U32": "uint32", "U16": "uint16"}
    kinds |= {"U8": "uint8", "TEXT": "string"}
    declared = {
        name: " ".join(f"{c}:{kinds[k]}" for c, k in re.findall(r'\{"(\w+)", (\w+)\}', columns))
        for name, columns in tables
    }
    assert {name: " ".join(text.split()) for name, text in COLUMNS.items()} == {
        name: declared[name] for name in COLUMNS
    }
    spec = tmp_path / "spec.toml"
    spec.write_text("ranks = 1\nsteps = 3\n[model]\nblocks = 1\n")
    write_trace(spec, tmp_path / "trace")
    (process,) = (tmp_path / "trace").glob("rank-*")
    assert json.loads((process / "meta.json").read_text())["simulated"] is True
    with pa.OSFile(str(process / "kernel.arrows")) as file:
        assert len(list(pa.ipc.open_stream(file))) == 3


def test_what_is_there_stays(tmp_path: Path):
    spec = tmp_path / "spec.toml"
    spec.write_text("ranks = 1\nsteps = 1\n[model]\nblocks = 1\n")
    (tmp_path / "trace").mkdir()
    for force in (False, True):
        with pytest.raises(GapscopeError) as told:
            write_trace(spec, tmp_path / "trace", force=force)
        assert told.value.slug == ("not-a-run" if force else "exists")
    assert list((tmp_path / "trace").iterdir()) == []
