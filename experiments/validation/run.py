"""Simulate trainings with faults, analyse each, and keep what the model and the truth say.

`run.py OUT [--settings N] [--only TEXT]`: one row per run, rank and step in OUT/steps.csv, one per
run and pair of classes in OUT/pieces.csv. Runs that are there already are not made again.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import lean
from settings import Run, runs

Row = dict[str, Any]

STEPS = """
WITH truth AS (
    SELECT rank, step_id,
        any_value(observed_ns) AS observed_ns, any_value(compute_ns) AS compute_ns,
        any_value(ideal_step_ns) AS ideal_ns, any_value(clean_step_ns) AS clean_ns,
        string_agg(coalesce(expected_class, ''), '+' ORDER BY injection) AS expected,
        string_agg(injected_ns::VARCHAR, '+' ORDER BY injection) AS injected
    FROM v1.simulated_truth GROUP BY rank, step_id
),
hw_queue AS (
    SELECT rank, step_id, sum(end_ns - start_ns) AS hw_queue_ns FROM v1.gap_piece
    WHERE gap_class = 'R2' AND sub_cause = 'hw_queue' GROUP BY rank, step_id
),
ladder AS (
    SELECT rank, step_id, min(slow_ns) FILTER (removed = 'R1') AS without_r1_ns,
        min(slow_ns) FILTER (removed = 'R2') AS without_r2_ns,
        min(slow_ns) FILTER (removed = 'R3') AS without_r3_ns
    FROM (SELECT *, coalesce(stretched_ns, step_ns) AS slow_ns FROM v1.what_if)
    GROUP BY rank, step_id
)
SELECT t.*, g.observed_ns AS model_observed_ns, g.t_lb_ns, g.compute_ns AS model_compute_ns,
    g.work_ns, g.r1_ns, g.r2_ns, g.r3_ns, g.h1_ns, g.h2_ns, g.floor_ns, g.unresolved_ns,
    g.carried_ns, coalesce(q.hw_queue_ns, 0) AS hw_queue_ns, g.is_boundary, g.is_provisional,
    w.step_ns AS replayed_ns, l.* EXCLUDE (rank, step_id)
FROM truth AS t
LEFT JOIN v1.step_gap AS g ON t.rank = g.rank AND t.step_id = g.step_id
LEFT JOIN hw_queue AS q ON t.rank = q.rank AND t.step_id = q.step_id
LEFT JOIN v1.what_if AS w ON t.rank = w.rank AND t.step_id = w.step_id AND w.removed = ''
LEFT JOIN ladder AS l ON t.rank = l.rank AND t.step_id = l.step_id
ORDER BY t.rank, t.step_id
"""

# Time that both describe, by what each calls it. What reconciliation or hidden lateness made of a
# piece is kept apart: the simulator says what held a start, not what it was worth.
PIECES = """
SELECT s.wait_class AS truth,
    g.gap_class || CASE WHEN g.is_hidden THEN ' hidden'
        WHEN g.gap_class = 'H2' AND g.rule = 'join' THEN ' was R3'
        WHEN g.gap_class = 'H2' AND g.rule IN ('Q1', 'stream') THEN ' was R2'
        WHEN g.gap_class = 'H2' AND g.rule IS NOT NULL THEN ' was R1' ELSE '' END AS model,
    sum(least(s.end_ns, g.end_ns) - greatest(s.start_ns, g.start_ns)) AS ns
FROM v1.simulated_piece AS s
INNER JOIN v1.gap_piece AS g
    ON s.rank = g.rank AND s.step_id = g.step_id AND s.start_ns < g.end_ns AND g.start_ns < s.end_ns
GROUP BY ALL ORDER BY ALL
"""

CHECKS = """
SELECT string_agg(DISTINCT check_name, ' ') FROM v1.model_check
WHERE withholds IN ('bound', 'verdict')
"""


def measure(one: Run) -> tuple[list[Row], list[Row]]:
    """Rows of one run, which is thrown away."""
    import gapscope
    from gapscope.simulate.run import write_run

    with tempfile.TemporaryDirectory() as directory:
        spec, out = Path(directory) / "spec.toml", Path(directory) / "run"
        spec.write_text(one.toml(), encoding="utf-8")
        write_run(spec, out, workers=1)
        with gapscope.open_run(out) as run:
            refused = run.sql(CHECKS).item() or ""
            steps, pieces = run.sql(STEPS).to_dicts(), run.sql(PIECES).to_dicts()
    known = {"run": one.name, "twin": one.twin, "faults": "+".join(one.faults), "refused": refused}
    return [{**known, **row} for row in steps], [{"run": one.name, **row} for row in pieces]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--settings", type=int, default=112)
    parser.add_argument("--singles", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--spec", action="store_true", help="print the SPEC files of these")
    given = parser.parse_args()
    wanted = [
        one for one in runs(given.settings, given.singles, given.seed) if given.only in one.name
    ]
    if given.spec:
        print("\n".join(one.toml() for one in wanted))
        return
    given.out.mkdir(exist_ok=True)
    done = _names(given.out / "steps.csv")
    missing = [one for one in wanted if one.name not in done]
    began = time.monotonic()
    with ProcessPoolExecutor(given.workers, initializer=lean.install) as pool:
        jobs = [pool.submit(measure, one) for one in missing]
        for number, job in enumerate(as_completed(jobs), 1):
            steps, pieces = job.result()
            _append(given.out / "pieces.csv", pieces)
            _append(given.out / "steps.csv", steps)
            if number % 20 == 0:
                print(f"{number} of {len(jobs)}, {time.monotonic() - began:.0f} s", flush=True)


def _names(path: Path) -> set[str]:
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        return {row["run"] for row in csv.DictReader(file)}


def _append(path: Path, rows: list[Row]) -> None:
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        if rows:
            writer = csv.DictWriter(file, rows[0].keys())
            if is_new:
                writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
