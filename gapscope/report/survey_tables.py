"""The survey of all ranks in the report: parts, hosts, who holds up whom and why, bandwidth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapscope.report import survey
from gapscope.report.document import Column, Quantity, Statement, Table
from gapscope.report.facts import table

if TYPE_CHECKING:
    from gapscope.report.facts import Facts, Row

# Hosts side by side: the rank that is latest counts, and what one rank waits.
HOSTS = """\
SELECT
    coalesce(s.hostname, 'unknown') AS hostname, s.part, count(*) AS rank_count,
    quantile_disc(s.step_ns, 0.5) AS step_ns, max(s.step_ns) AS slowest_ns,
    quantile_disc(s.compute_ns, 0.5) AS compute_ns, quantile_disc(s.wait_ns, 0.5) AS wait_ns,
    quantile_disc(b.behind_ns, 0.5) AS behind_ns, max(s.held_ns) AS held_ns,
    sum(s.laggard_steps)::BIGINT AS laggard_steps
FROM v1.rank_survey AS s
LEFT JOIN (
    SELECT rank, quantile_disc(behind_ns, 0.5) AS behind_ns FROM v1.rank_lateness GROUP BY rank
) AS b ON s.rank = b.rank
WHERE s.step_count > 0
GROUP BY ALL
ORDER BY behind_ns DESC NULLS LAST, hostname, s.part
LIMIT 64"""

# R3 of every waiting rank, by whom it waited for and why that one was late; counts and times are of
# the same steps, those that count and in which clocks can be compared.
LAGGARDS = """\
SELECT
    l.rank, p.part, l.step_count, l.matched_count, l.last_count, s.laggard_steps,
    l.late_ns, l.held_ns, l.held_max_ns, (r.r3_ns / l.step_count)::BIGINT AS r3_ns, r.reasons
FROM (
    SELECT
        n.rank, count(*) AS step_count, sum(n.matched_count)::BIGINT AS matched_count,
        sum(n.last_count)::BIGINT AS last_count, avg(n.late_ns)::BIGINT AS late_ns,
        avg(n.held_ns)::BIGINT AS held_ns, max(n.held_ns) AS held_max_ns
    FROM v1.rank_lateness AS n
    INNER JOIN v1.step_budget AS b ON n.rank = b.rank AND n.step_id = b.step_id
    WHERE n.is_resolved AND b.projection = 'device' AND NOT b.is_boundary AND b.step_ns > 0
    GROUP BY n.rank
) AS l
INNER JOIN v1.rank_part AS p ON l.rank = p.rank
INNER JOIN v1.rank_survey AS s ON l.rank = s.rank
LEFT JOIN (
    SELECT
        culprit_rank, sum(reason_ns) AS r3_ns,
        string_agg(
            reason || ' ' || round(100 * reason_ns / all_ns)::BIGINT || ' %', ', '
            ORDER BY reason_ns DESC, reason
        ) FILTER (WHERE reason_ns >= 0.05 * all_ns) AS reasons
    FROM (
        SELECT
            c.culprit_rank, coalesce(c.sub_cause, 'unknown') AS reason,
            sum(c.total_ns) AS reason_ns,
            sum(sum(c.total_ns)) OVER (PARTITION BY c.culprit_rank) AS all_ns
        FROM v1.gap_cause AS c
        INNER JOIN v1.step_gap AS g
            ON c.rank = g.rank AND c.step_id = g.step_id AND NOT g.is_boundary
        WHERE c.gap_class = 'R3' AND NOT c.is_provisional AND c.culprit_rank <> c.rank
        GROUP BY c.culprit_rank, reason
    ) AS reasoned
    GROUP BY culprit_rank
) AS r ON l.rank = r.culprit_rank
WHERE l.last_count > 0
ORDER BY l.held_ns DESC, l.last_count DESC, l.rank
LIMIT 32"""


def statements(facts: Facts) -> list[Statement]:
    """The straggler verdict of each part, and what the captured ranks do not support."""
    scope = facts.rows(survey.SCOPE)[0]
    parts = facts.rows(survey.PARTS)
    said = []
    for part in parts[:_PARTS_SAID]:
        name = f"{part['part']}: " if len(parts) > 1 else ""
        said.append(Statement(name + survey.straggler(part), "straggler"))
        if skew := survey.skewed(part):
            said.append(Statement(name + skew, "straggler"))
    if len(parts) > _PARTS_SAID:
        said.append(
            Statement(f"{len(parts) - _PARTS_SAID} further parts stand in the table.", "straggler")
        )
    world, captured = scope["world_size"], scope["captured"]
    if world is not None and world > captured:
        said.append(Statement(survey.limits(scope, [])[0], "straggler"))
    return said


_PARTS_SAID = 8


def tables(facts: Facts) -> list[Table]:
    """Tables of more than one rank; the columns of each are those of its query."""
    parts = facts.rows(survey.PARTS)
    made = [_parts(parts), _representatives(facts)]
    hosts = facts.rows(HOSTS)
    if len({row["hostname"] for row in hosts}) > 1:
        made.append(_hosts(hosts))
    laggards = facts.rows(LAGGARDS)
    if laggards:
        made.append(_laggards(laggards))
    bandwidth = facts.rows(survey.BANDWIDTH)
    if bandwidth:
        made.append(_bandwidth(bandwidth))
    return made


def _parts(rows: list[Row]) -> Table:
    return table(
        "parts",
        "Parts: ranks that run the same program",
        "Ranks are compared within a part only. Detected parts run the same types of collectives, "
        "and as many of them and of device ops to within 5 %; `[parts]` in gapscope.toml declares "
        "them. Repeated or rotating is a binomial test over the steps with a laggard.",
        "parts",
        survey.PARTS,
        rows,
        (
            Column("part", "part"),
            Column("source", "from"),
            Column("rank_count", "ranks", "count"),
            Column("step_count", "steps", "count"),
            Column("verdict", "straggler"),
            Column("laggard_steps", "with laggard", "count"),
            Column("top_rank", "most often", "id"),
            Column("top_count", "times", "count"),
            Column("top_held_ns", "holds up", "ns"),
            Column("p_value", "chance", "share"),
            Column("fastest_rank", "fastest", "id"),
            Column("fastest_ns", "its step", "ns"),
            Column("slowest_rank", "slowest", "id"),
            Column("slowest_ns", "its step", "ns"),
            Column("spread_ns", "spread", "ns"),
            Column("program", "a step is"),
        ),
    )


def _representatives(facts: Facts) -> Table:
    rows: list[Row] = [
        {
            **row,
            "step": Quantity(
                row["step_ns"], "ns", row["step_count"], row["step_min_ns"], row["step_max_ns"]
            ),
        }
        for row in facts.rows(survey.REPRESENTATIVES)
    ]
    return table(
        "representatives",
        "Ranks to look at closely",
        "The slowest of the run, repeated stragglers, and the usual rank of each part; medians "
        "over the steps that count, each measure for itself (the lower of two): a row need not be "
        "one step, nor sum to it.",
        "ranks",
        survey.REPRESENTATIVES,
        rows,
        (
            Column("rank", "rank", "id"),
            Column("role", "as"),
            Column("part", "part"),
            Column("step", "step", "ns"),
            Column("compute_ns", "compute", "ns"),
            Column("exposed_comm_ns", "exposed comm.", "ns"),
            Column("idle_ns", "device idle", "ns"),
            Column("wait_ns", "waits", "ns"),
            Column("held_ns", "holds up", "ns"),
        ),
    )


def _hosts(rows: list[Row]) -> Table:
    return table(
        "hosts",
        "Hosts",
        "Medians over the ranks of a host, of their medians over steps; the host whose ranks come "
        "latest first.",
        "lateness",
        HOSTS,
        rows,
        (
            Column("hostname", "host"),
            Column("part", "part"),
            Column("rank_count", "ranks", "count"),
            Column("step_ns", "step", "ns"),
            Column("slowest_ns", "slowest", "ns"),
            Column("compute_ns", "compute", "ns"),
            Column("wait_ns", "waits", "ns"),
            Column("behind_ns", "behind the median", "ns"),
            Column("held_ns", "holds up most", "ns"),
            Column("laggard_steps", "laggard in steps", "count"),
        ),
    )


def _laggards(rows: list[Row]) -> Table:
    return table(
        "laggards",
        "Who was last, how often, and why",
        "Over the steps that count: counts are of all of them together, times a step's mean (most: "
        "its largest). Last: by more than three clock residuals after the last but one. Late: from "
        "that one's arrival to this rank's. Holds up: the part of it in which the last but one "
        "rank had nothing to compute. R3 and the laggard's own reason are those of the dependency "
        "model, all waiting ranks together; empty where it gives no verdict.",
        "lateness",
        LAGGARDS,
        rows,
        (
            Column("rank", "rank", "id"),
            Column("part", "part"),
            Column("step_count", "steps", "count"),
            Column("laggard_steps", "laggard", "count"),
            Column("matched_count", "collectives", "count"),
            Column("last_count", "last", "count"),
            Column("late_ns", "late", "ns"),
            Column("held_ns", "holds up", "ns"),
            Column("held_max_ns", "most", "ns"),
            Column("r3_ns", "R3 of others", "ns"),
            Column("reasons", "because of"),
        ),
    )


def _bandwidth(rows: list[Row]) -> Table:
    return table(
        "bandwidth",
        "Bandwidth by message size",
        "From the last arrival to the last end, medians over collectives of which all ranks were "
        "captured and whose transfer is longer than the clock residual; bus bandwidth as "
        "nccl-tests counts it. What runs beside a collective slows it down.",
        "bandwidth",
        survey.BANDWIDTH,
        rows,
        (
            Column("type", "type", "code"),
            Column("bytes", "message", "B"),
            Column("group_size", "ranks", "count"),
            Column("group_count", "groups", "count"),
            Column("instance_count", "collectives", "count"),
            Column("resolved_count", "resolved", "count"),
            Column("transfer_ns", "transfer", "ns"),
            Column("shortest_ns", "shortest", "ns"),
            Column("algorithm_gb_s", "algorithm", "GB/s"),
            Column("bus_gb_s", "bus", "GB/s"),
        ),
    )
