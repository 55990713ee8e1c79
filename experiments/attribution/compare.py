"""Unit and phase that `v1.op_unit` gives each compute op, against the truth of the same captures.

compare.py CAPTURE_DIR TRUTH_DIR    NAME_rankN.json.gz against NAME_rankN.truth.parquet
"""

from __future__ import annotations

import collections
import sys
import tempfile
from pathlib import Path

import gapscope
from gapscope.ingest.pipeline import ingest

# Truth knows the root as '' and an optimizer op as of no unit; `op_unit` says '' of both.
COMPARED = """
WITH truth AS (
    SELECT rank, correlation AS correlation_id, coalesce(true_unit, '') AS unit,
        true_phase AS phase, via, recompute
    FROM read_parquet(?)
    WHERE scope = 'compute' AND true_phase IS NOT NULL
)
SELECT o.rank, n.name, t.via, t.recompute, t.unit AS true_unit, t.phase AS true_phase,
    u.unit, u.phase, u.node, o.end_ns - o.start_ns AS dur_ns,
    (t.unit, t.phase) IS NOT DISTINCT FROM (u.unit, u.phase) AS is_right
FROM truth AS t
INNER JOIN v1.device_op AS o ON t.rank = o.rank AND t.correlation_id = o.correlation_id
LEFT JOIN v1.name AS n ON o.rank = n.rank AND o.name_id = n.name_id
LEFT JOIN v1.op_unit AS u ON o.rank = u.rank AND o.op_id = u.op_id
WHERE o.time_class = 'compute'
ORDER BY o.rank, o.op_id
"""

ALL_COMPUTE = "SELECT count(*) FROM v1.device_op WHERE time_class = 'compute'"


def compare(captures: list[Path], truths: list[str]) -> tuple[list[dict], int]:
    """Every compared op of one configuration, and how many compute ops have no truth."""
    with tempfile.TemporaryDirectory() as scratch:
        run_path = Path(scratch) / "run"
        ingest(captures, run_path)
        with gapscope.open_run(run_path) as run:
            ops = run.sql(COMPARED, [truths]).to_dicts()
            return ops, run.sql(ALL_COMPUTE).item() - len(ops)


def wrong(ops: list[dict]) -> list[str]:
    """What is wrong, alike ops counted together."""
    counted = collections.Counter(
        f"rank {op['rank']}: {op['true_phase']} of '{op['true_unit']}' (via {op['via']}) taken for"
        f" {op['phase']} of '{op['unit']}', node {op['node']}: {op['name'][:60]}"
        for op in ops
        if not op["is_right"]
    )
    return [f"{count} x {what}" for what, count in counted.most_common()]


def main(capture_directory: str, truth_directory: str) -> None:
    configurations = collections.defaultdict(list)
    for capture in sorted(Path(capture_directory).glob("*_rank*.json.gz")):
        configurations[capture.name.rsplit("_rank", 1)[0]].append(capture)
    print("| configuration | ranks | compute ops | right | share | of compute time | no truth |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    total = total_right = 0
    mistakes = {}
    for name, captures in configurations.items():
        stems = [capture.name.removesuffix(".json.gz") for capture in captures]
        truths = [str(Path(truth_directory) / f"{stem}.truth.parquet") for stem in stems]
        ops, untold = compare(captures, truths)
        right = [op for op in ops if op["is_right"]]
        in_time = sum(op["dur_ns"] for op in right) / sum(op["dur_ns"] for op in ops)
        print(
            f"| {name} | {len(captures)} | {len(ops):,} | {len(right):,} |"
            f" {len(right) / len(ops):.2%} | {in_time:.2%} | {untold} |",
            flush=True,
        )
        total, total_right = total + len(ops), total_right + len(right)
        mistakes[name] = wrong(ops)
    print(f"| all | | {total:,} | {total_right:,} | {total_right / total:.2%} | | |")
    for name, found in mistakes.items():
        for line in found:
            print(f"{name}: {line}")


if __name__ == "__main__":
    main(*sys.argv[1:])
