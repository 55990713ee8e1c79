"""The tables of the README: runs ingested from a campaign, and the step times that it printed.

`table.py steps.jsonl RUN...`, where each RUN is named after its case; `clean.run` is the twin.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import gapscope

CLASSES = """
SELECT rank, count(*) AS n, median(observed_ns) / 1e6 AS step, median(t_lb_ns) / 1e6 AS t_lb,
    median(compute_ns) / 1e6 AS compute, median(r1_ns) / 1e6, median(r2_ns) / 1e6,
    median(r3_ns) / 1e6, median(h1_ns + h2_ns) / 1e6,
    bool_and(compute_ns <= t_lb_ns AND t_lb_ns <= observed_ns)
FROM v1.step_gap WHERE NOT is_boundary GROUP BY rank ORDER BY rank
"""

QUALITY = """
SELECT
    (SELECT count(*) FROM v1.collective_match) AS collectives,
    (SELECT count(*) FROM v1.collective_match WHERE is_matched) AS matched,
    (SELECT max(residual_ns) / 1e3 FROM v1.rank_clock) AS residual_us,
    (SELECT count(*) FROM v1.device_op) AS ops,
    (SELECT count(launch_call_id) FROM v1.device_op) AS linked,
    (SELECT count(*) FROM v1.device_op WHERE start_ns < launch_start_ns) AS early
"""

WITHOUT = """
SELECT removed, avg(step_ns) / 1e6 FROM v1.what_if GROUP BY removed
"""


def said(text: str) -> Iterator[dict[str, Any]]:
    """JSON objects of the file: two ranks may have printed at one time, into one line."""
    decoder = json.JSONDecoder()
    at, tool = text.find("{"), ""
    while at >= 0:
        try:
            one, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            one, end = {}, at + 1
        if "before_ms" in one:
            tool = one.get("tool", tool)
            yield {**one, "tool": tool}
        at = text.find("{", end)


def main() -> None:
    steps, runs = Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]
    clean_step = clean_compute = 0.0
    print("| run | rank | n | step | T_lb | compute | R1 | R2 | R3 | H | ordered |")
    ladders = []
    for run in runs:
        with gapscope.open_run(run) as opened:
            rows = opened.sql(CLASSES).rows()
            for row in rows:
                numbers = " | ".join(f"{number:.1f}" for number in row[2:9])
                print(f"| {run.stem} | {row[0]} | {row[1]} | {numbers} | {row[9]} |")
            if run.stem == "clean":
                clean_step, clean_compute = rows[0][2], rows[0][4]
            rungs = dict(opened.sql(WITHOUT).rows())
            ladders.append((run.stem, rows[0][4], rungs))
            print(f"{run.stem}:", *opened.sql(QUALITY).rows()[0])
    print("| run | without | step | to clean | with clean's compute |")
    for name, compute, rungs in ladders:
        for removed in ("R1", "R2", "R1+R3"):
            if removed in rungs:
                step = rungs[removed]
                plain, same = (
                    step / clean_step - 1,
                    (step + clean_compute - compute) / clean_step - 1,
                )
                print(f"| {name} | {removed} | {step:.1f} | {plain:+.1%} | {same:+.1%} |")
    print("| case | tool | rank | before | during |")
    for one in said(steps.read_text(encoding="utf-8")):
        before, during = median(one["before_ms"]), median(one["during_ms"])
        print(f"| {one['name']} | {one['tool']} | {one['rank']} | {before:.1f} | {during:.1f} |")


main()
