"""The survey of all ranks: its queries, and its verdicts in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapscope.units import plural, value

if TYPE_CHECKING:
    from collections.abc import Iterable

Row = dict[str, Any]

RANKS = "FROM v1.rank_survey ORDER BY rank"

PARTS = """\
SELECT
    s.*, p.ranks, g.program,
    coalesce(w.start_skew_windows, 0) AS start_skew_windows,
    coalesce(w.late_end_windows, 0) AS late_end_windows
FROM v1.part_straggler AS s
INNER JOIN (
    SELECT part, list(rank ORDER BY rank) AS ranks, min(rank) AS lowest_rank
    FROM v1.rank_part
    GROUP BY part
) AS p ON s.part = p.part
LEFT JOIN (
    SELECT
        rank,
        string_agg(measure || ' ' || count_per_step, ', ' ORDER BY count_per_step, measure)
            AS program
    FROM v1.rank_signature
    GROUP BY rank
) AS g ON p.lowest_rank = g.rank
LEFT JOIN (
    SELECT
        r.part,
        count(*) FILTER (WHERE k.skew = 'start skew') AS start_skew_windows,
        count(*) FILTER (WHERE k.skew IN ('late end', 'both')) AS late_end_windows
    FROM v1.window_skew AS k
    INNER JOIN v1.rank_part AS r ON k.rank = r.rank
    GROUP BY r.part
) AS w ON s.part = w.part
ORDER BY p.lowest_rank"""

REPRESENTATIVES = """\
SELECT
    r.role, r.part, r.rank, s.step_count, s.step_min_ns, s.step_ns, s.step_max_ns,
    s.noncomm_ns, s.compute_ns, s.comm_ns, s.exposed_comm_ns, s.copy_ns, s.idle_ns,
    s.wait_ns, s.late_ns, s.held_ns
FROM v1.representative_rank AS r
INNER JOIN v1.rank_survey AS s ON r.rank = s.rank
ORDER BY list_position(['slowest', 'straggler', 'usual'], r.role), r.rank"""

BANDWIDTH = """\
SELECT
    type, bytes, group_size, count(*)::BIGINT AS group_count,
    sum(instance_count)::BIGINT AS instance_count, sum(resolved_count)::BIGINT AS resolved_count,
    quantile_disc(transfer_ns, 0.5) AS transfer_ns, min(shortest_ns) AS shortest_ns,
    quantile_disc(algorithm_gb_s, 0.5) AS algorithm_gb_s, quantile_disc(bus_gb_s, 0.5) AS bus_gb_s
FROM v1.collective_bandwidth
GROUP BY type, bytes, group_size
ORDER BY type, bytes, group_size
LIMIT 60"""

# One line: what was captured, and how well ranks compare.
SCOPE = """\
SELECT
    r.captured, r.world_size, r.hosts, r.devices, r.device_name,
    c.residual_ns, c.residual_rank, c.methods, c.is_comparable,
    a.op_count, a.matched_count
FROM (
    SELECT
        count(*) AS captured,
        coalesce(
            max(world_size),
            (SELECT value::BIGINT FROM v1.analysis_contract WHERE item = 'world_size')
        ) AS world_size,
        count(DISTINCT hostname) AS hosts,
        count(DISTINCT coalesce(device_uuid, hostname || ' ' || device)) AS devices,
        any_value(device_name) AS device_name
    FROM v1.rank
) AS r
CROSS JOIN (
    SELECT
        max(residual_ns) AS residual_ns, arg_max(rank, residual_ns) AS residual_rank,
        string_agg(DISTINCT method, ', ' ORDER BY method) AS methods,
        count(*) > 1 AND count(offset_ns) = count(*) AS is_comparable
    FROM v1.rank_clock
) AS c
CROSS JOIN (
    SELECT
        count(*) AS op_count, count(*) FILTER (WHERE is_matched) AS matched_count
    FROM v1.collective_match
) AS a"""

SHARED = """\
SELECT list(rank ORDER BY rank) AS ranks
FROM v1.rank
WHERE device_uuid IS NOT NULL
GROUP BY device_uuid
HAVING count(*) > 1
ORDER BY min(rank)"""


def spans(ranks: Iterable[int], most: int = 6) -> str:
    """`0-3, 8`: runs of ranks; what does not fit is counted."""
    found: list[list[int]] = []
    for rank in sorted(ranks):
        if found and rank == found[-1][1] + 1:
            found[-1][1] = rank
        else:
            found.append([rank, rank])
    texts = [str(low) if low == high else f"{low}-{high}" for low, high in found]
    if len(texts) > most:
        left = sum(high - low + 1 for low, high in found[most:])
        return ", ".join(texts[:most]) + f" and {left} more"
    return ", ".join(texts)


def straggler(part: Row) -> str:
    """Whether one rank holds a part up, as a sentence without its subject's name."""
    steps = plural(part["step_count"], "step")
    held = _held_up(part)
    chance = _chance(part["p_value"])
    if part["verdict"] == "repeated":
        return (
            f"Rank {part['top_rank']} is a repeated straggler: of {steps} {held}. By chance some "
            f"rank would be it so often with p {chance}."
        )
    if part["verdict"] == "rotating":
        return f"The laggard rotates: of {steps} {held}, which chance does with p {chance}."
    if part["verdict"] == "none":
        unclear = part["step_count"] - part["resolved_count"]
        return (
            f"No straggler: in {part['resolved_count']} of {steps} no rank held up the others by "
            "2 % of the step"
            + (f"; {unclear} could not be resolved against the clocks." if unclear else ".")
        )
    if part["top_rank"] is not None:
        return (
            f"Repeated or chance is not resolved: of {steps} {held}, which chance does with p "
            f"{chance}; {part['needed_steps']} such steps are needed to tell."
        )
    return f"Not resolved: {part['detail']}."


def _held_up(part: Row) -> str:
    """`6 have a rank that holds up the others, most often rank 1 in 4, by 21.00 ms a step`."""
    count, top, amount = part["laggard_steps"], part["top_rank"], value(part["top_held_ns"], "ns")
    if count == 1:
        return f"1 has a rank that holds up the others: rank {top}, by {amount}"
    often = f"most often rank {top} in {part['top_count']}"
    if part["top_count"] == count:
        often = f"each time rank {top}"
    return f"{count} have a rank that holds up the others, {often}, by {amount} a step"


def skewed(part: Row) -> str:
    """Which steps of single ranks are longer than those of their peers, and at which end."""
    early, late = part["start_skew_windows"], part["late_end_windows"]
    said = []
    if early:
        said.append(
            f"Start skew, which is no straggling, in {plural(early, 'step')} of single ranks: they "
            "begin earlier than their peers and end with them."
        )
    if late:
        said.append(
            f"In {plural(late, 'step')} of single ranks the end comes later than the peers'."
        )
    return " ".join(said)


def _chance(p_value: float | None) -> str:
    if p_value is None:
        return ""
    return "below 1e-9" if p_value < 1e-9 else f"= {p_value:.2g}"


def limits(scope: Row, shared: list[Row]) -> list[str]:
    """What the captured ranks do not support saying."""
    said = []
    world, captured = scope["world_size"], scope["captured"]
    if world is not None and world > captured:
        said.append(
            f"{captured:,} of {world:,} ranks were captured, and verdicts cover these only: one "
            "that was not may be slower than all of them, and collectives with it say nothing "
            "about who came last."
        )
    unmatched = scope["op_count"] - scope["matched_count"]
    if unmatched:
        said.append(
            f"{unmatched:,} of {plural(scope['op_count'], 'collective operation')} could not be "
            "matched on all their ranks and count for nothing here."
        )
    if captured > 1 and not scope["is_comparable"]:
        said.append(
            "No clock relates these ranks, so nothing is said about who came late: capture them "
            "with a source that states Unix time, or with collectives that can be matched."
        )
    if shared:
        groups = "; ".join(spans(row["ranks"]) for row in shared[:4])
        more = f" and {len(shared) - 4} more devices" if len(shared) > 4 else ""
        said.append(f"Ranks that share a device ({groups}{more}) differ by contention as well.")
    return said


def clocks(scope: Row) -> str:
    """How well ranks compare, in one sentence."""
    if scope["captured"] < 2:
        return "one rank, nothing to compare"
    if not scope["is_comparable"]:
        return "unknown: ranks cannot be compared"
    if scope["residual_ns"] is None:
        return f"{scope['methods']}; residual unknown: no collective is matched"
    return (
        f"{scope['methods']}; residual {value(scope['residual_ns'], 'ns')} (p95 of matched "
        f"ends; largest on rank {scope['residual_rank']}): lateness below "
        f"{value(3 * scope['residual_ns'], 'ns')} names nobody"
    )
