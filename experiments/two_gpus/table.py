"""The tables of the README: runs ingested from a campaign, and the step times that it printed.

`table.py steps.jsonl RUN...`, where each RUN is named after its case. Odd steps have the fault,
even ones are their twin; in clean runs both are clean.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import gapscope

# Labels of the tracer number steps as the program does; an optimizer's begin at an even one.
PARITY = r"coalesce(try_cast(regexp_extract(s.label, '(\d+)$', 1) AS INT), s.step_id) % 2"

CLASSES = f"""
SELECT rank, {PARITY} AS is_odd, count(*), median(observed_ns) / 1e6, median(t_lb_ns) / 1e6,
    median(compute_ns) / 1e6, median(r1_ns) / 1e6, median(r2_ns) / 1e6, median(r3_ns) / 1e6,
    median(h1_ns + h2_ns) / 1e6, bool_and(compute_ns <= t_lb_ns AND t_lb_ns <= observed_ns)
FROM v1.step_gap AS g INNER JOIN v1.step AS s USING (rank, step_id)
WHERE NOT s.is_boundary GROUP BY ALL ORDER BY is_odd, rank
"""

# Without communication beside it a kernel takes as long as the clock makes it.
PACE = f"""
WITH op AS (
    SELECT o.rank, o.name_id, o.start_ns, o.end_ns, o.time_class, s.step_id, {PARITY} AS is_odd
    FROM v1.device_op AS o INNER JOIN v1.step AS s
        ON o.rank = s.rank AND o.start_ns >= s.device_start_ns AND o.start_ns < s.device_end_ns
    WHERE NOT s.is_boundary
), alone AS (
    SELECT *, row_number() OVER (PARTITION BY rank, step_id, name_id ORDER BY start_ns) AS ordinal
    FROM op WHERE time_class = 'compute'
    QUALIFY NOT EXISTS (
        FROM op AS c WHERE c.time_class = 'communication' AND c.rank = op.rank
            AND c.start_ns < op.end_ns AND c.end_ns > op.start_ns
    )
), paired AS (
    SELECT median(end_ns - start_ns) FILTER (is_odd = 1) AS odd_ns,
        median(end_ns - start_ns) FILTER (is_odd = 0) AS even_ns
    FROM alone GROUP BY rank, name_id, ordinal
)
SELECT sum(odd_ns) / sum(even_ns) FROM paired WHERE odd_ns IS NOT NULL AND even_ns IS NOT NULL
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

WITHOUT = f"""
SELECT removed, median(step_ns) / 1e6, median(stretched_ns) / 1e6
FROM v1.what_if AS w INNER JOIN v1.step AS s USING (rank, step_id)
WHERE {PARITY} = 1 GROUP BY removed
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
    twins = []
    print("| run | steps | rank | n | step | T_lb | compute | R1 | R2 | R3 | H | ordered |")
    for run in runs:
        with gapscope.open_run(run) as opened:
            rows = opened.sql(CLASSES).rows()
            for rank, is_odd, n, *numbers, is_ordered in rows:
                numbered = " | ".join(f"{number:.1f}" for number in numbers)
                which = "odd" if is_odd else "even"
                print(f"| {run.stem} | {which} | {rank} | {n} | {numbered} | {is_ordered} |")
            even, odd = (next(row for row in rows if row[1] == is_odd) for is_odd in (0, 1))
            pace = opened.sql(PACE).rows()[0][0]
            twins.append((run.stem, even, odd, pace, opened.sql(WITHOUT).rows()))
            print(f"{run.stem}:", *opened.sql(QUALITY).rows()[0])
    print("| run | compute alone | T_lb | same clock | without | step | slowed | same clock |")
    for name, even, odd, pace, rungs in twins:
        more = odd[5] / pace - odd[5]  # compute at the clock of the even steps
        bound, same = odd[4] / even[4] - 1, (odd[4] + more) / even[4] - 1
        for removed, step, slowed in rungs:
            if removed in ("R1", "R2", "R1+R3"):
                # Slowed: what newly runs beside communication takes longer, as measured.
                plain, stretched, clocked = (
                    f"{ms / even[3] - 1:+.1%}" for ms in (step, slowed, slowed + more)
                )
                print(
                    f"| {name} | {pace - 1:+.1%} | {bound:+.1%} | {same:+.1%} | {removed} "
                    f"| {plain} | {stretched} | {clocked} |"
                )
    print("| case | tool | rank | odd before | odd during | even before | even during |")
    for one in said(steps.read_text(encoding="utf-8")):
        # Both lists begin with an odd step.
        times = [
            mean(one[when][first::2]) for first in (0, 1) for when in ("before_ms", "during_ms")
        ]
        print(f"| {one['name']} | {one['tool']} | {one['rank']} |", *(f"{t:.1f} |" for t in times))


main()
