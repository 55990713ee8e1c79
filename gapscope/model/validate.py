"""What the model found in a run against what is known to have happened there.

The truth is a table of the run (`v1.simulated_truth`, one row a rank, step and injection) or one
expectation a run that somebody wrote down. A run is judged where its truth is expected to show: a
late launch on the ranks that are late, skew on those that wait for them.

A run has idle of its own too, above all H1 and H2. So a found amount is that of the injection and
of the background together, and a run with nothing injected agrees when nothing recoverable
dominates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gapscope.model.rows import Rows

CLASSES = ("R1", "R2", "R3", "H1", "H2")
NOTHING = "none"
WITHHELD = "withheld"

# A smaller share of a step is below what the replay may miss: no class is expected to dominate.
RESOLUTION = 0.02


@dataclass(frozen=True)
class Expected:
    """What a run is known to contain, per step: by default the mean over its ranks."""

    expected_class: str
    expected_ns: int | None = None
    tolerance_ns: int | None = None
    rank: int | None = None


@dataclass(frozen=True)
class Finding:
    """One injection of a run, or its one expectation: medians over steps, means over ranks.

    `found_class` is what dominates where the truth is expected to show. `agrees` is None where that
    says nothing: an injection beside this one is larger or as large, it is below the resolution
    (`is_below`), or the model refused. `saved_ns` is what the ladder promises for the run's step
    without the class.
    """

    injected: str
    expected_class: str
    expected_ns: int | None
    found_class: str
    found_ns: int | None
    error_ns: int | None
    tolerance_ns: int | None
    saved_ns: int | None
    stretched_saved_ns: int | None
    is_below: bool
    agrees: bool | None


@dataclass(frozen=True)
class Judged:
    """One run. By expected and found class, `cells` counts ranks and steps, `pieces` sums ns."""

    findings: tuple[Finding, ...]
    cells: tuple[dict[str, Any], ...]
    pieces: tuple[dict[str, Any], ...]
    # T_lb less the shortest step that the simulator knows, as a share of it: median and worst.
    bound_median_share: float | None = None
    bound_worst_share: float | None = None

    @property
    def agrees(self) -> bool | None:
        """False as soon as one finding disagrees; None where none says anything."""
        said = [one.agrees for one in self.findings if one.agrees is not None]
        return all(said) if said else None

    @property
    def is_withheld(self) -> bool:
        """Nothing could be judged, because the model refused or there is no step."""
        return all(finding.found_class == WITHHELD for finding in self.findings)


# One row a rank, step and injection; the largest injection of a rank and step comes first.
_SIMULATED = """
WITH cell AS (
    SELECT
        t.rank, t.step_id, t.injection,
        trim(t.injected_class || ' ' || coalesce(t.place, '')) AS injected,
        t.injected_class,
        CASE
            WHEN t.expected_class IN ('R1', 'R2', 'R3', 'H1', 'H2') THEN t.expected_class
            ELSE 'none'
        END AS expected_class,
        CASE WHEN t.injection IS NOT NULL THEN t.injected_ns END AS expected_ns,
        t.injection IS NULL OR t.injected_ns < {resolution} * t.observed_ns AS is_below,
        row_number() OVER (
            PARTITION BY t.rank, t.step_id ORDER BY t.injected_ns DESC, t.injection
        ) AS place
    FROM v1.simulated_truth AS t
    INNER JOIN v1.step AS s ON t.rank = s.rank AND t.step_id = s.step_id
    WHERE NOT s.is_boundary
)"""

_DECLARED = """
WITH asked AS (
    SELECT ?::VARCHAR AS expected_class, ?::BIGINT AS expected_ns, ?::BIGINT AS rank
),
cell AS (
    SELECT
        s.rank, s.step_id, NULL::BIGINT AS injection,
        a.expected_class AS injected, a.expected_class AS injected_class, a.expected_class,
        a.expected_ns,
        coalesce(a.expected_ns < {resolution} * (s.device_end_ns - s.device_start_ns), false)
            AS is_below,
        1 AS place
    FROM v1.step AS s
    CROSS JOIN asked AS a
    WHERE NOT s.is_boundary AND (a.rank IS NULL OR s.rank = a.rank)
)"""

# The recoverable class that dominates, or else the hard one: every run has hard idle of its own.
_DOMINANT = """
CASE
    WHEN observed_ns IS NULL THEN 'withheld'
    WHEN greatest(r1_ns, r2_ns, r3_ns) >= {resolution} * observed_ns THEN
        CASE greatest(r1_ns, r2_ns, r3_ns) WHEN r1_ns THEN 'R1' WHEN r2_ns THEN 'R2' ELSE 'R3' END
    WHEN greatest(h1_ns, h2_ns) >= {resolution} * observed_ns THEN
        CASE greatest(h1_ns, h2_ns) WHEN h1_ns THEN 'H1' ELSE 'H2' END
    ELSE 'none'
END"""

_FOUND = """,
found AS (
    SELECT c.*, g.* EXCLUDE (rank, step_id)
    FROM cell AS c
    LEFT JOIN v1.step_gap AS g
        ON c.rank = g.rank AND c.step_id = g.step_id AND NOT g.is_provisional
)"""

_FINDINGS = """,
judged AS (
    SELECT
        injection,
        CASE
            WHEN bool_or(expected_class = injected_class) THEN any_value(injected_class)
            ELSE mode(expected_class)
        END AS expected_class
    FROM cell
    GROUP BY injection
),
stepwise AS (
    SELECT
        f.injection, f.step_id, any_value(f.injected) AS injected, f.expected_class,
        avg(f.expected_ns) AS expected_ns, bool_or(f.is_below) AS is_below,
        avg(f.observed_ns) AS observed_ns,
        avg(f.r1_ns) AS r1_ns, avg(f.r2_ns) AS r2_ns, avg(f.r3_ns) AS r3_ns,
        avg(f.h1_ns) AS h1_ns, avg(f.h2_ns) AS h2_ns
    FROM found AS f
    INNER JOIN judged AS j
        ON f.injection IS NOT DISTINCT FROM j.injection AND f.expected_class = j.expected_class
    GROUP BY f.injection, f.step_id, f.expected_class
),
whole AS (
    SELECT
        injection, any_value(injected) AS injected, expected_class,
        median(expected_ns) AS expected_ns, mode(is_below) AS is_below,
        median(observed_ns) AS observed_ns,
        median(r1_ns) AS r1_ns, median(r2_ns) AS r2_ns, median(r3_ns) AS r3_ns,
        median(h1_ns) AS h1_ns, median(h2_ns) AS h2_ns
    FROM stepwise
    GROUP BY injection, expected_class
),
ladder AS (
    SELECT
        w.removed,
        median(e.step_ns - w.step_ns) AS saved_ns,
        median(e.step_ns - w.stretched_ns) AS stretched_saved_ns
    FROM v1.what_if_step AS w
    INNER JOIN v1.what_if_step AS e ON w.step_id = e.step_id AND e.removed = ''
    WHERE NOT w.is_boundary
    GROUP BY w.removed
)
SELECT
    w.injected, w.expected_class, round(w.expected_ns)::BIGINT AS expected_ns,
    {dominant} AS found_class,
    round(CASE w.expected_class
        WHEN 'R1' THEN w.r1_ns WHEN 'R2' THEN w.r2_ns WHEN 'R3' THEN w.r3_ns
        WHEN 'H1' THEN w.h1_ns WHEN 'H2' THEN w.h2_ns
        ELSE greatest(w.r1_ns, w.r2_ns, w.r3_ns)
    END)::BIGINT AS found_ns,
    round(l.saved_ns)::BIGINT AS saved_ns,
    round(l.stretched_saved_ns)::BIGINT AS stretched_saved_ns,
    w.is_below,
    row_number() OVER largest = 1 AND coalesce(
        w.expected_ns - lead(w.expected_ns) OVER largest >= {resolution} * w.observed_ns, true
    ) AS is_largest
FROM whole AS w
LEFT JOIN ladder AS l ON w.expected_class = l.removed
WINDOW largest AS (ORDER BY w.expected_ns DESC NULLS LAST, w.injection)
ORDER BY w.expected_ns DESC NULLS LAST, w.injection
"""

_CELLS = """
SELECT
    CASE WHEN is_below THEN 'none' ELSE expected_class END AS expected,
    {dominant} AS found,
    count(*) AS cell_count
FROM found
WHERE place = 1
GROUP BY ALL
ORDER BY ALL
"""

# `transfer` of the truth may be hard or hide lateness; the truth leaves out gaps below 100 us.
_PIECES = """
WITH judged AS (
    SELECT g.rank, g.step_id
    FROM v1.step_gap AS g
    WHERE NOT g.is_boundary AND NOT g.is_provisional
),
truth AS (
    SELECT p.rank, p.step_id, p.start_ns, p.end_ns, p.wait_class
    FROM v1.simulated_piece AS p
    INNER JOIN judged AS j ON p.rank = j.rank AND p.step_id = j.step_id
),
found AS (
    SELECT p.rank, p.step_id, p.start_ns, p.end_ns, p.gap_class
    FROM v1.gap_piece AS p
    INNER JOIN judged AS j ON p.rank = j.rank AND p.step_id = j.step_id
),
shared AS (
    SELECT
        t.wait_class AS expected, f.gap_class AS found,
        sum(least(t.end_ns, f.end_ns) - greatest(t.start_ns, f.start_ns)) AS ns
    FROM truth AS t
    INNER JOIN found AS f
        ON t.rank = f.rank AND t.step_id = f.step_id
        AND t.start_ns < f.end_ns AND f.start_ns < t.end_ns
    GROUP BY t.wait_class, f.gap_class
),
counted AS (
    SELECT expected, found, ns FROM shared
    UNION ALL
    SELECT wait_class, NULL, sum(end_ns - start_ns) FROM truth GROUP BY wait_class
    UNION ALL
    SELECT expected, NULL, -ns FROM shared
    UNION ALL
    SELECT NULL, gap_class, sum(end_ns - start_ns) FROM found GROUP BY gap_class
    UNION ALL
    SELECT NULL, found, -ns FROM shared
)
SELECT expected, found, sum(ns)::BIGINT AS ns
FROM counted
GROUP BY expected, found
HAVING sum(ns) <> 0
ORDER BY expected NULLS LAST, found NULLS LAST
"""

_BOUND = """
SELECT
    median((g.t_lb_ns - t.ideal_step_ns) / t.ideal_step_ns) AS median_share,
    arg_max(
        (g.t_lb_ns - t.ideal_step_ns) / t.ideal_step_ns, abs(g.t_lb_ns - t.ideal_step_ns)
    ) AS worst_share
FROM v1.step_gap AS g
INNER JOIN (SELECT DISTINCT rank, step_id, ideal_step_ns FROM v1.simulated_truth) AS t
    ON g.rank = t.rank AND g.step_id = t.step_id
WHERE NOT g.is_boundary
"""

_TABLES = "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'v1'"


def has_truth(run: Rows) -> bool:
    """Whether the run carries its own truth."""
    return "simulated_truth" in run.sql(_TABLES)["table_name"].to_list()


def judge_simulated(run: Rows, resolution: float = RESOLUTION) -> Judged:
    """A run against the truth that it carries."""
    has_pieces = "simulated_piece" in run.sql(_TABLES)["table_name"].to_list()
    pieces = run.sql(_PIECES).to_dicts() if has_pieces else []
    findings, cells = _judged(run, _SIMULATED, [], resolution, None)
    return Judged(findings, cells, tuple(pieces), *run.sql(_BOUND).row(0))


def judge_declared(run: Rows, expected: Expected, resolution: float = RESOLUTION) -> Judged:
    """A run against what somebody says that it contains."""
    asked = [expected.expected_class, expected.expected_ns, expected.rank]
    findings, cells = _judged(run, _DECLARED, asked, resolution, expected.tolerance_ns)
    return Judged(findings, cells, ())


def class_agrees(expected_class: str, found_class: str) -> bool:
    """Whether a found class is what the truth lets one expect."""
    if expected_class == NOTHING:
        return found_class in (NOTHING, "H1", "H2")
    return expected_class == found_class


def confusion(runs: Iterable[Judged]) -> dict[str, list[dict[str, Any]]]:
    """Expected against found class over runs: `runs` and `cells` counted, `pieces` in ns."""
    totals: dict[str, Counter[tuple[str | None, str | None]]] = {
        "runs": Counter(),
        "cells": Counter(),
        "pieces": Counter(),
    }
    for judged in runs:
        for finding in judged.findings[:1]:
            expected = NOTHING if finding.is_below else finding.expected_class
            totals["runs"][expected, finding.found_class] += 1
        for cell in judged.cells:
            totals["cells"][cell["expected"], cell["found"]] += cell["cell_count"]
        for piece in judged.pieces:
            totals["pieces"][piece["expected"], piece["found"]] += piece["ns"]
    return {
        name: [
            {"expected": expected, "found": found, "ns" if name == "pieces" else "count": amount}
            for (expected, found), amount in total.items()
        ]
        for name, total in totals.items()
    }


def _judged(
    run: Rows, truth: str, asked: list[Any], resolution: float, tolerance_ns: int | None
) -> tuple[tuple[Finding, ...], tuple[dict[str, Any], ...]]:
    def rows(query: str) -> list[dict[str, Any]]:
        whole = (truth + _FOUND + query).replace("{dominant}", _DOMINANT)
        return run.sql(whole.replace("{resolution}", repr(float(resolution))), asked).to_dicts()

    findings = tuple(_finding(row, tolerance_ns) for row in rows(_FINDINGS))
    return findings, tuple(rows(_CELLS))


def _finding(row: dict[str, Any], tolerance_ns: int | None) -> Finding:
    is_below, is_largest = row["is_below"], row.pop("is_largest")
    expected_ns, found_ns = row["expected_ns"], row["found_ns"]
    error_ns = None if found_ns is None or expected_ns is None else found_ns - expected_ns
    agrees: bool | None = None
    if row["found_class"] != WITHHELD:
        is_near = tolerance_ns is None or error_ns is None or abs(error_ns) <= tolerance_ns
        if is_largest and (not is_below or row["expected_class"] == NOTHING):
            agrees = class_agrees(row["expected_class"], row["found_class"]) and is_near
        elif tolerance_ns is not None:
            agrees = is_near
    return Finding(**row, error_ns=error_ns, tolerance_ns=tolerance_ns, agrees=agrees)
