"""Steps and starts of collectives of two runs, side by side: `compare.py CAPTURE SIMULATED`."""

from __future__ import annotations

import sys

import gapscope

STEPS = """
SELECT median(step_ns) / 1e6 AS step, median(compute_ns) / 1e6 AS compute,
    median(exposed_comm_ns) / 1e6 AS exposed, median(launch_starved_ns) / 1e6 AS starved
FROM v1.step_budget WHERE projection = 'device' AND rank = 0"""

# When each collective of a step starts, and how much of it compute hides, rank 0, median step.
STARTS = """
WITH numbered AS (
    SELECT s.step_id, o.dur_ns, o.start_ns - s.device_start_ns AS at_ns, o.op_class,
        row_number() OVER (PARTITION BY s.step_id ORDER BY o.correlation_id) AS number,
        regexp_extract(o.name, '(AllGather|ReduceScatter)') AS type
    FROM v1.op AS o
    INNER JOIN v1.step AS s
        ON o.rank = s.rank AND o.issued_ns BETWEEN s.host_start_ns AND s.host_end_ns
    WHERE o.rank = 0 AND o.op_class = 'nccl'
)
SELECT number, any_value(type) AS type, median(at_ns) / 1e6 AS at, median(dur_ns) / 1e6 AS length
FROM numbered GROUP BY number ORDER BY number"""


def main(capture: str, simulated: str) -> None:
    found = []
    for path in (capture, simulated):
        with gapscope.open_run(path) as run:
            found.append((run.sql(STEPS).to_dicts()[0], run.sql(STARTS).to_dicts()))
    (real, real_starts), (made, made_starts) = found
    for name in real:
        print(f"{name:<8} {real[name]:7.1f} {made[name]:7.1f} ms")
    print("collective        start          length (capture, simulated; ms)")
    for one, other in zip(real_starts, made_starts, strict=True):
        assert one["type"] == other["type"]
        print(
            f"{one['number']:>3} {one['type']:<14}{one['at']:7.1f} {other['at']:7.1f}"
            f" {one['length']:7.1f} {other['length']:7.1f}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
