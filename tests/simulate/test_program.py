"""Host order, labels and recorded edges, held against captures of real training."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

import gapscope
from gapscope.ingest.pipeline import ingest
from gapscope.simulate.run import write_run

# Ranges of the training script itself, and of what the simulator leaves out.
LABELS = """
SELECT n.name, r.tid <> min(r.tid) OVER () AS is_autograd
FROM v1.range AS r
INNER JOIN v1.name AS n ON r.rank = n.rank AND r.name_id = n.name_id
INNER JOIN v1.step AS s ON r.rank = s.rank AND s.step_id = 1
WHERE r.rank = 0 AND r.kind = 'user_annotation' AND n.name NOT LIKE 'ProfilerStep%'
    AND r.start_ns >= s.host_start_ns AND r.start_ns < s.host_end_ns
ORDER BY r.start_ns, r.end_ns DESC"""

NESTING = """
SELECT count(*) AS crossing
FROM v1.range AS a
INNER JOIN v1.range AS b ON a.rank = b.rank AND a.tid = b.tid AND a.range_id < b.range_id
    AND a.start_ns < b.start_ns AND b.start_ns < a.end_ns AND a.end_ns < b.end_ns"""

# Ops other than compute in the order of launch: class, label, stream's place among the streams.
OPS = """
SELECT o.kind, o.op_class, o.annotation, dense_rank() OVER (ORDER BY o.stream) AS stream
FROM v1.op AS o
INNER JOIN v1.step AS s
    ON o.rank = s.rank AND s.step_id = 1 AND o.issued_ns BETWEEN s.host_start_ns AND s.host_end_ns
WHERE o.rank = 0 AND o.time_class IN ('communication', 'packing', 'copy')
ORDER BY o.correlation_id"""

# Recorded event edges between ops, named by class, label and ordinal.
EDGES = """
WITH named AS (
    SELECT o.op_id,
        CASE
            WHEN o.time_class IN ('compute', 'memset') THEN 'compute'
            WHEN o.op_class = 'nccl' THEN regexp_extract(o.name, 'AllGather|ReduceScatter')
            ELSE o.op_class || coalesce(o.annotation, '')
        END AS role,
        row_number() OVER (PARTITION BY role, o.stream ORDER BY o.correlation_id) AS number
    FROM v1.op AS o
    INNER JOIN v1.step AS s ON o.rank = s.rank AND s.step_id = 2
        AND o.issued_ns BETWEEN s.host_start_ns AND s.host_end_ns
    WHERE o.rank = 0
)
SELECT DISTINCT
    a.role || CASE WHEN a.role = 'compute' THEN '' ELSE '#' || a.number END AS producer,
    b.role || CASE WHEN b.role = 'compute' THEN '' ELSE '#' || b.number END AS consumer
FROM v1.event_edge AS e
INNER JOIN named AS a ON e.producer_op_id = a.op_id
INNER JOIN named AS b ON e.consumer_op_id = b.op_id
WHERE e.rank = 0"""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six blocks with a root, as in the captures."""
    directory = tmp_path_factory.mktemp("simulated")
    source = directory / "six.toml"
    source.write_text("ranks = 2\nsteps = 3\n[model]\nblocks = 6\nlayers_per_block = 1\n")
    return write_run(source, directory / "six.run").out


def rows(run: Path, query: str) -> list[tuple]:
    with gapscope.open_run(run) as opened:
        return opened.sql(query).rows()


def test_labels_follow_each_other_as_in_a_capture(simulated, tiny_run):
    assert rows(simulated, LABELS) == rows(tiny_run, LABELS)


def test_ranges_of_a_thread_nest(simulated):
    assert rows(simulated, NESTING) == [(0,)]


def test_ops_follow_each_other_as_in_a_capture(simulated, tiny_run):
    found = rows(simulated, OPS)
    assert len(found) > 90
    assert found == rows(tiny_run, OPS)


def test_recorded_edges_are_those_of_a_capture(simulated, shared_data, tmp_path):
    """Nsight records both ends of each wait; the simulator authored them from FSDP2's source."""
    name = "nq8_base_rank0.sqlite"
    capture = shared_data / "data" / "h200" / "nsys" / f"{name}.gz"
    with gzip.open(capture) as packed, (tmp_path / name).open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    real = ingest([tmp_path / name], tmp_path / "real.run", workers=1).out
    found = set(rows(simulated, EDGES))
    assert len(found) > 50
    assert found == set(rows(real, EDGES))
