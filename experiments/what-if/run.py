"""What the ladder promises, against what a run without the fault measured.

run.py alternating DIR    alt_late and alt_skew: even steps have the fault, their neighbours none
run.py pairs DIR          captures of two runs each, one with the mechanism and one without

DIR holds the captures, NAME_rankN.json.gz. Prints Markdown; times in ms, differences in percent.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gapscope
from gapscope.ingest.pipeline import ingest

# The last rank sleeps in both captures with skew; the other one waits.
WAITING_RANK = 0
ALTERNATING = (("alt_late", "R1", None), ("alt_skew", "R3", WAITING_RANK), ("alt_skew", "R1", None))
PAIRS = (
    ("p_base", "q8_base", "R2", None),
    ("g2_conn1", "g2_base", "R2", None),
    ("p_late12000", "p_base", "R1", None),
    ("q8_late12000", "q8_base", "R1", None),
    ("p_skew10000", "p_base", "R3", WAITING_RANK),
)

# Steps as on their slowest rank, or on the one rank that is asked for.
STEPS = """
WITH transferred AS (
    SELECT rank, step_id, sum(transfer_proxy_ns) AS transfer_ns
    FROM v1.collective_instance
    GROUP BY rank, step_id
),
step AS (
    SELECT
        g.step_id,
        max(g.observed_ns) / 1e6 AS observed,
        max(g.t_lb_ns) / 1e6 AS bound,
        max(g.compute_ns) / 1e6 AS compute,
        max(t.transfer_ns) / 1e6 AS transfers,
        max(w.step_ns) FILTER (WHERE w.removed = '') / 1e6 AS replay,
        max(w.step_ns) FILTER (WHERE w.removed = $removed) / 1e6 AS promised,
        max(w.stretched_ns) FILTER (WHERE w.removed = $removed) / 1e6 AS stretched
    FROM v1.step_gap AS g
    LEFT JOIN v1.what_if AS w ON g.rank = w.rank AND g.step_id = w.step_id
    LEFT JOIN transferred AS t ON g.rank = t.rank AND g.step_id = t.step_id
    WHERE NOT g.is_boundary AND ($rank IS NULL OR g.rank = $rank)
    GROUP BY g.step_id
)
"""
MEDIAN = (
    STEPS
    + """
SELECT median(COLUMNS(* EXCLUDE (step_id))) FROM step
"""
)
BESIDE_CLEAN = (
    STEPS
    + """
SELECT
    s.*,
    avg(c.observed) AS clean_observed,
    avg(c.promised) AS clean_promised,
    avg(c.bound) AS clean_bound,
    avg(c.compute) AS clean_compute,
    avg(c.transfers) AS clean_transfers
FROM step AS s
INNER JOIN step AS c ON abs(c.step_id - s.step_id) = 1
WHERE s.step_id % 2 = 0
GROUP BY ALL
ORDER BY s.step_id
"""
)
# What one clean step says of the next: no promise can be better than this.
CLEAN = (
    STEPS
    + """
SELECT min(observed) AS least, max(observed) AS most FROM step WHERE step_id % 2 = 1
"""
)
REFUSED = """
SELECT string_agg(DISTINCT detail, '; ') AS why FROM v1.model_check WHERE withholds IS NOT NULL
"""
HEADER = (
    "observed | replay | promised | stretched | clean | error | stretched error | like for like"
    " | bound differs | compute differs | transfers differ"
)


class Runs:
    """Runs of a directory of captures, each ingested once."""

    def __init__(self, captures: Path, scratch: Path) -> None:
        self.captures = captures
        self.scratch = scratch

    @contextmanager
    def open(self, name: str) -> Iterator[gapscope.Run]:
        path = self.scratch / f"{name}.run"
        if not path.exists():
            ingest(sorted(self.captures.glob(f"{name}_rank*.json.gz")), path)
        with gapscope.open_run(path) as run:
            yield run


def ask(run: gapscope.Run, query: str, removed: str, rank: int | None) -> list[dict]:
    return run.sql(query, {"removed": removed, "rank": rank}).to_dicts()


def cells(row: dict) -> str:
    """Times, errors, and how far the work itself differs from that of the clean step.

    Like for like: against the clean step without its own share of the mechanism.
    """

    def off(name: str, of: str) -> str:
        value, clean = row[name], row[f"clean_{of}"]
        return "" if value is None or clean is None else f"{value / clean - 1:+.1%}"

    times = ("observed", "replay", "promised", "stretched", "clean_observed")
    return " | ".join(
        [
            *("" if row[name] is None else f"{row[name]:.1f}" for name in times),
            off("promised", "observed"),
            off("stretched", "observed"),
            off("promised", "promised"),
            *(off(name, name) for name in ("bound", "compute", "transfers")),
        ]
    )


def title(removed: str, rank: int | None) -> str:
    return f"without {removed}" + ("" if rank is None else f", rank {rank}")


def alternating(runs: Runs) -> None:
    for name, removed, rank in ALTERNATING:
        with runs.open(name) as run:
            rows = ask(run, BESIDE_CLEAN, removed, rank)
            clean = ask(run, CLEAN, removed, rank)[0]
        print(
            f"\n{name} {title(removed, rank)}; clean steps {clean['least']:.1f} to"
            f" {clean['most']:.1f}\n\n| step | {HEADER} |\n{'| --- ' * 12}|"
        )
        for row in rows:
            print(f"| {row['step_id']} | {cells(row)} |")


def pairs(runs: Runs) -> None:
    print(f"\n| with | without | removed | {HEADER} |\n{'| --- ' * 14}|")
    for name, twin_name, removed, rank in PAIRS:
        with runs.open(name) as run:
            row = ask(run, MEDIAN, removed, rank)[0]
            refused = run.sql(REFUSED).item()
        with runs.open(twin_name) as run:
            twin = ask(run, MEDIAN, removed, rank)[0]
        row |= {f"clean_{name}": value for name, value in twin.items()}
        print(f"| {name} | {twin_name} | {title(removed, rank)} | {cells(row)} |", flush=True)
        if refused:
            print(f"{name}: withheld: {refused}", file=sys.stderr)


def main(what: str, captures: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        runs = Runs(Path(captures), Path(scratch))
        {"alternating": alternating, "pairs": pairs}[what](runs)


if __name__ == "__main__":
    main(*sys.argv[1:])
