"""Hardware metrics of operators, where a capture sampled them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapscope.report.document import Column, Statement, Table
from gapscope.report.facts import code, table
from gapscope.units import listed, plural, value

if TYPE_CHECKING:
    from gapscope.report.facts import Facts, Row

# (key, label, what the tool's names of it begin with)
_SHOWN = (
    ("sm_issue", "SM Issue", "SM Issue"),
    ("tensor_active", "Tensor Active", "Tensor Active"),
    ("dram_read", "DRAM read", "DRAM Read"),
    ("dram_write", "DRAM write", "DRAM Write"),
    ("nvlink_rx", "NVLink RX", "NVLink RX Responses User Data"),
    ("nvlink_tx", "NVLink TX", "NVLink TX Responses User Data"),
    ("pcie_rx", "PCIe RX", "PCIe RX"),
    ("pcie_tx", "PCIe TX", "PCIe TX"),
)

_PERCENT = "metric LIKE '%\\%]' ESCAPE '\\'"

_MEANS = ",\n    ".join(
    f"max(mean_value) FILTER (WHERE metric LIKE '{begins}%' AND {_PERCENT}) / 100 AS {key}"
    for key, _, begins in _SHOWN
)

# The tool names it in MHz and gives Hz, as `v1.step_gpu_clock` says.
_CLOCK = (
    "max(CASE WHEN mean_value < 1e5 THEN 1e6 ELSE 1 END * mean_value) "
    "FILTER (WHERE metric LIKE 'GPC Clock Frequency%') AS gpc_clock"
)

_PIVOT = f"""\
SELECT
    source_path, device, rank, time_class, op_class, name,
    any_value(timing_share) AS timing_share,
    any_value(covered_share) AS covered_share,
    any_value(period_ns) AS period_ns,
    max(sample_count) AS sample_count,
    max(full_count) AS full_count,
    max(exclusivity) AS exclusivity,
    CASE
        WHEN bool_and(status = 'uncovered') THEN 'uncovered'
        WHEN bool_and(status = 'unsampled') THEN 'unsampled'
        WHEN bool_or(status = 'contaminated') THEN 'contaminated'
        WHEN bool_or(status = 'partial') THEN 'partial'
        ELSE 'ok'
    END AS status,
    {_MEANS},
    {_CLOCK}
FROM v1.operator_metric
WHERE level = '{{level}}'
GROUP BY source_path, device, rank, time_class, op_class, name"""

CLASSES = f"""\
{_PIVOT.format(level="class")}
ORDER BY source_path, device, timing_share DESC NULLS LAST, time_class, op_class
LIMIT 60"""

OPS = f"""\
{_PIVOT.format(level="op")}
ORDER BY timing_share DESC NULLS LAST, full_count DESC, name, source_path, device
LIMIT 20"""

# Classes that the steps spend time in and that no capture of metrics has: nothing is known of them.
UNMET = """\
SELECT k.time_class, k.op_class, sum(k.volume_share) / count(DISTINCT k.rank) AS volume_share
FROM v1.kernel_inventory AS k
WHERE NOT EXISTS (
    SELECT 1
    FROM v1.operator_metric AS m
    WHERE m.level = 'class' AND k.time_class = m.time_class AND k.op_class = m.op_class
)
GROUP BY k.time_class, k.op_class
ORDER BY volume_share DESC, k.time_class, k.op_class"""

STEP_CLOCKS = """\
SELECT
    c.rank, c.step_id, s.is_boundary, c.compute_ns, c.mean_hz, c.min_hz, c.max_hz, c.sample_count,
    c.covered_share, c.compute_cycles / 1e6 AS compute_megacycles
FROM v1.step_gpu_clock AS c
INNER JOIN v1.step AS s ON c.rank = s.rank AND c.step_id = s.step_id
ORDER BY c.rank, c.step_id
LIMIT 200"""

_COLUMNS = (
    Column("timing_share", "of timed volume", "share", "share of the timing captures' work volume"),
    Column(
        "covered_share", "covered", "share", "of that volume: kernels that were sampled by name"
    ),
    Column("sample_count", "samples", "count", "in whose time it ran at all"),
    Column("full_count", "n", "count", "in which it alone ran, 90 % of the time or more"),
    Column(
        "exclusivity", "exclusivity", "share", "samples in which no other ran, of all it ran in"
    ),
    Column(
        "status", "status", "code", "`contaminated`: exclusivity below 50 %; `partial`: covered so"
    ),
    *(Column(key, label, "share") for key, label, _ in _SHOWN),
)


def statements(facts: Facts) -> list[Statement]:
    """Where the metrics come from, what they are means of, and what they do not tell."""
    rows = facts.rows(CLASSES)
    if not rows:
        return []
    sources = sorted({row["source_path"] for row in rows})
    is_own = all(row["rank"] is not None for row in rows)
    where = (
        "sampled in the timing captures themselves, whose launches sampling delays"
        if is_own
        else f"of {plural(len(sources), 'capture')} of its own ({listed(sources)}), joined by "
        "operator class and name, never by launch"
    )
    periods = sorted({row["period_ns"] for row in rows})
    said = [
        Statement(
            f"Hardware metrics are {where}. A value is the mean of n samples of "
            f"{value(periods[0], 'ns')} in which exactly that class ran for 90 % of the time or "
            "more.",
            "metrics",
        )
    ]
    for status, text in (
        ("contaminated", "in most of its samples another class ran too"),
        ("unsampled", "no such sample, so nothing is known"),
        ("uncovered", "no kernel that the run has of it was sampled, so nothing is known"),
        ("partial", "most of its time here is in kernels that were not sampled"),
    ):
        names = [_class(row) for row in rows if row["status"] == status]
        if names:
            said.append(
                Statement(
                    f"{status.capitalize()} ({text}): {', '.join(sorted(set(names)))}.", "metrics"
                )
            )
    unmet = facts.rows(UNMET)
    if unmet:
        names_unmet = ", ".join(
            f"{_class(row)} ({value(row['volume_share'], 'share')} of the volume)" for row in unmet
        )
        said.append(Statement(f"In no capture of metrics, so unknown: {names_unmet}.", "metrics"))
    absent = [label for key, label, _ in _SHOWN if all(row[key] is None for row in rows)]
    if absent:
        said.append(Statement(f"Not sampled, so unknown: {', '.join(absent)}.", "metrics"))
    return said


def tables(facts: Facts) -> tuple[Table, ...]:
    """Metrics per class, of the ops with the largest volume, and the clock of each step."""
    classes = facts.rows(CLASSES)
    if not classes:
        return ()
    # Which rank's ops met the samples, where these are in captures of the ranks.
    of_rank = () if all(row["rank"] is None for row in classes) else (Column("rank", "rank", "id"),)
    has_clock = any(row["gpc_clock"] is not None for row in classes)
    values = (*_COLUMNS, Column("gpc_clock", "GPC clock", "Hz")) if has_clock else _COLUMNS
    return (
        table(
            "class-metrics",
            "Hardware metrics by operator class",
            "Percent of peak as the tool samples it; n/a is unknown, not zero.",
            "metrics",
            CLASSES,
            classes,
            (
                Column("source_path", "samples of", "code"),
                Column("device", "device", "id"),
                *of_rank,
                Column("time_class", "class", "class"),
                Column("op_class", "finer", "code"),
                *values,
            ),
        ),
        table(
            "op-metrics",
            "Hardware metrics of the ops with the largest volume",
            "The same by name: a sample counts while exactly that op ran.",
            "metrics",
            OPS,
            facts.rows(OPS),
            (*of_rank, Column("name", "op", "code"), Column("op_class", "finer", "code"), *values),
            is_open=False,
        ),
        *_step_clocks(facts),
    )


def _step_clocks(facts: Facts) -> tuple[Table, ...]:
    rows = facts.rows(STEP_CLOCKS)
    if not rows:
        return ()
    return (
        table(
            "step-clocks",
            "GPU clock while each step computes",
            "Of the samples in the middle of which compute runs. Steps of the same work take as "
            "many cycles: what then differs is the clock.",
            "gpu-clock",
            STEP_CLOCKS,
            rows,
            (
                Column("rank", "rank", "id"),
                Column("step_id", "step", "id"),
                Column("compute_ns", "compute", "ns"),
                Column("mean_hz", "mean clock", "Hz"),
                Column("min_hz", "lowest", "Hz"),
                Column("max_hz", "highest", "Hz"),
                Column("compute_megacycles", "million cycles", "count"),
                Column("sample_count", "samples", "count"),
                Column(
                    "covered_share", "covered", "share", "time of the samples, of that of compute"
                ),
                Column("is_boundary", "boundary", "flag"),
            ),
            is_open=False,
        ),
    )


def _class(row: Row) -> str:
    return code(f"{row['time_class']}/{row['op_class']}")
