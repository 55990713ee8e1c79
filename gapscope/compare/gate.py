"""What a policy makes of a run: each rule with what was measured, its limit and a verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from gapscope.compare.document import Comparison
from gapscope.compare.policy import EXAMPLE
from gapscope.units import fixed, listed, plural, value

if TYPE_CHECKING:
    from gapscope.compare.ledgers import Rows

GATE_VERSION = 1


class Verdict(Enum):
    """Of a rule. unknown: there is nothing to judge by, and that is no pass."""

    PASS = "pass"  # noqa: S105 -- no password
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule. `measured` and `limit` are in the unit that the rule's name ends in."""

    rule: str
    verdict: Verdict
    measured: float | None
    limit: float | None
    detail: str


_STEP = """\
WITH of_run AS (
    SELECT n.step_number, max(b.step_ns) AS step_ns, count(*) AS ranks
    FROM v1.step_budget AS b
    INNER JOIN v1.step_number AS n ON b.rank = n.rank AND b.step_id = n.step_id
    WHERE b.projection = 'device' AND NOT b.is_boundary
    GROUP BY n.step_number
)
SELECT
    count(*) AS step_count, quantile_cont(step_ns, 0.5) AS step_ns,
    min(step_ns) AS low_ns, max(step_ns) AS high_ns
FROM of_run
WHERE ranks = (SELECT max(o.ranks) FROM of_run AS o)"""

_COUNTS = """\
SELECT r.rank, count(s.step_id) AS step_count
FROM v1.rank AS r
LEFT JOIN v1.step AS s ON r.rank = s.rank AND NOT s.is_boundary
GROUP BY r.rank
ORDER BY step_count, r.rank
LIMIT 1"""

_EXPOSED = """\
SELECT rank, sum(exposed_comm_ns) / sum(step_ns) AS share
FROM v1.step_budget
WHERE projection = 'device' AND NOT is_boundary AND step_ns > 0
GROUP BY rank
ORDER BY share DESC, rank
LIMIT 1"""

_RECOVERABLE = """\
SELECT
    rank, sum(r1_ns + r2_ns + r3_ns) / sum(observed_ns) AS share,
    count(t_lb_ns) = count(*) AND count(r3_ns) = count(*) AND NOT bool_or(is_provisional)
        AS is_known
FROM v1.step_gap
WHERE NOT is_boundary
GROUP BY rank
ORDER BY is_known, share DESC, rank
LIMIT 1"""

_REFUSALS = """\
SELECT DISTINCT detail
FROM v1.model_check
WHERE withholds IN ('bound', 'verdict') OR check_name = 'collectives_matched'
ORDER BY detail
LIMIT 2"""

_PERTURBATION = """\
SELECT p.rank, p.slowdown, c.contradiction
FROM v1.perturbation AS p
LEFT JOIN v1.analysis_contract AS c ON c.item = 'reference_step_ms'
ORDER BY p.slowdown DESC, p.rank
LIMIT 1"""

_LIMITS = """\
SELECT check_name, min(forbids) AS forbids
FROM v1.capture_quality
WHERE forbids IS NOT NULL OR status = 'fail'
GROUP BY check_name
ORDER BY check_name"""

_CHECKS = "SELECT DISTINCT check_name FROM v1.capture_quality"

_AUDITS = """\
SELECT DISTINCT audit_name FROM v1.audit_result WHERE failed_count > 0 ORDER BY audit_name"""


def judge(policy: dict[str, Any], run: Rows, comparison: Comparison | None) -> list[Finding]:
    """Every rule of the policy; `comparison` is that of the baseline with the run."""
    rules: dict[str, Callable[[Any], Finding]] = {
        "max_step_ms": lambda limit: _step(limit, run),
        "max_regression_percent": lambda limit: _regression(limit, comparison),
        "max_exposed_comm_percent": lambda limit: _exposed(limit, run),
        "max_recoverable_percent": lambda limit: _recoverable(limit, run),
        "max_perturbation_percent": lambda limit: _perturbation(limit, run),
        "min_steps": lambda limit: _steps(limit, run),
        "tolerated_limits": lambda names: _limits(names, run),
    }
    return [rules[rule](limit) for rule, limit in policy.items()]


def overall(findings: list[Finding]) -> Verdict:
    """Fail where a rule failed, else unknown where one is, else pass."""
    verdicts = {finding.verdict for finding in findings}
    for worst in (Verdict.FAIL, Verdict.UNKNOWN):
        if worst in verdicts:
            return worst
    return Verdict.PASS


def _at_most(rule: str, measured: float, limit: float, detail: str) -> Finding:
    verdict = Verdict.PASS if measured <= limit else Verdict.FAIL
    return Finding(rule, verdict, measured, limit, detail)


def _unknown(rule: str, limit: float, why: str) -> Finding:
    return Finding(rule, Verdict.UNKNOWN, None, limit, why)


def _step(limit: float, run: Rows) -> Finding:
    row = run.rows(_STEP)[0]
    if not row["step_count"]:
        return _unknown("max_step_ms", limit, "no step counts")
    low, high = value(row["low_ns"], "ns"), value(row["high_ns"], "ns")
    detail = (
        f"median of {plural(row['step_count'], 'step')}, {low} to {high}, each on its slowest rank"
    )
    return _at_most("max_step_ms", row["step_ns"] / 1e6, limit, detail)


def _regression(limit: float, comparison: Comparison | None) -> Finding:
    rule = "max_regression_percent"
    if comparison is None:
        return _unknown(rule, limit, "no baseline: name one with `--baseline RUN`")
    if not comparison.is_comparable:
        return _unknown(rule, limit, comparison.headline.text)
    if comparison.is_confounded:
        differing = [check.item for check in comparison.checks if check.is_confounding]
        return _unknown(
            rule, limit, f"{listed(differing)} differ, so that no difference is the program's alone"
        )
    step = comparison.run
    low, high = 100 * step.share_low, 100 * step.share_high
    said = {
        "bootstrap": "95 % interval",
        "range": "range of few steps",
        "edges": "a launch more or less",
    }[step.median_interval.kind]
    detail = f"{said} {fixed(low, '+')} to {fixed(high, '+')} %"
    verdict = Verdict.UNKNOWN
    if low > limit:
        verdict = Verdict.FAIL
    elif high <= limit:
        verdict = Verdict.PASS
    else:
        detail += ": the limit lies in it, capture more steps, or steps of one kind"
    return Finding(rule, verdict, 100 * step.median_delta_share, limit, detail)


def _exposed(limit: float, run: Rows) -> Finding:
    rule = "max_exposed_comm_percent"
    rows = run.rows(_EXPOSED)
    if not rows:
        return _unknown(rule, limit, "no step counts")
    detail = f"rank {rows[0]['rank']} has most, mean over its steps"
    return _at_most(rule, 100 * rows[0]["share"], limit, detail)


def _recoverable(limit: float, run: Rows) -> Finding:
    rule = "max_recoverable_percent"
    rows = run.rows(_RECOVERABLE)
    if not rows or not rows[0]["is_known"]:
        why = "; ".join(row["detail"] for row in run.rows(_REFUSALS)) or "no step was analysed"
        return _unknown(rule, limit, f"no verdict of the model: {why}")
    detail = f"rank {rows[0]['rank']} has most, mean over its steps"
    return _at_most(rule, 100 * rows[0]["share"], limit, detail)


def _perturbation(limit: float, run: Rows) -> Finding:
    rule = "max_perturbation_percent"
    rows = run.rows(_PERTURBATION)
    if not rows:
        return _unknown(rule, limit, "no unprofiled steps are declared: reference_step_ms in [run]")
    if rows[0]["contradiction"] is not None:
        return _unknown(rule, limit, f"reference_step_ms in [run]: {rows[0]['contradiction']}")
    return _at_most(rule, 100 * rows[0]["slowdown"], limit, f"rank {rows[0]['rank']} has most")


def _steps(limit: int, run: Rows) -> Finding:
    rows = run.rows(_COUNTS)
    count = rows[0]["step_count"] if rows else 0
    verdict = Verdict.PASS if count >= limit else Verdict.FAIL
    detail = f"rank {rows[0]['rank']} has fewest" if rows else "no rank"
    return Finding("min_steps", verdict, count, limit, detail)


def _limits(tolerated: list[str], run: Rows) -> Finding:
    found = [row for row in run.rows(_LIMITS) if row["check_name"] not in tolerated]
    said = [
        f"{row['check_name']} forbids {row['forbids']}"
        if row["forbids"]
        else f"{row['check_name']} failed"
        for row in found
    ]
    said += [f"audit {row['audit_name']} does not hold" for row in run.rows(_AUDITS)]
    verdict = Verdict.FAIL if said else Verdict.PASS
    detail = "; ".join(said) or "no other check forbids anything, every audit holds"
    # Some checks are there only where they found something: the example's are known.
    known = {row["check_name"] for row in run.rows(_CHECKS)}
    unknown = [name for name in tolerated if name not in known and f'"{name}"' not in EXAMPLE]
    if unknown:
        detail += f"; tolerated, but names no check of this run: {listed(unknown)}"
    return Finding("tolerated_limits", verdict, len(said), 0, detail)
