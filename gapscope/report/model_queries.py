"""Queries over what the dependency model left in the run; texts to paste, as in `queries`."""

from __future__ import annotations

SHORTEST = "every transfer as long as its shortest participant"

# Parts of an observed step, from its length down to compute, as `gap_summary` names them.
RECOVERABLE = ("R3", "R1", "R2")
BESIDE = ("floor", "unresolved", "carried")
HARD = ("H2", "H1")
PARTS = (*RECOVERABLE, *BESIDE, *HARD, "work", "compute")

CHECKS = """\
SELECT
    check_name, status,
    coalesce(string_agg(step_id::VARCHAR, ', ' ORDER BY step_id), 'run') AS steps,
    arg_max(detail, (abs(measured), step_id)) AS detail,
    withholds
FROM v1.model_check
GROUP BY check_name, status, withholds
ORDER BY
    CASE withholds WHEN 'bound' THEN 0 WHEN 'verdict' THEN 1 WHEN 'ladder' THEN 2 ELSE 3 END,
    CASE status WHEN 'fail' THEN 0 WHEN 'warn' THEN 1 WHEN 'info' THEN 2 ELSE 3 END, check_name"""

QUEUES = "FROM v1.hardware_queue ORDER BY first_step_id, streams, until"

FLOORS = "FROM v1.launch_floor ORDER BY first_step_id, kind"

CONNECTIONS = """\
SELECT rank, value
FROM v1.environment
WHERE name = 'CUDA_DEVICE_MAX_CONNECTIONS'
ORDER BY rank"""

STRETCH = "SELECT measured AS factor FROM v1.model_check WHERE check_name = 'contention'"

# Ranks that wait for another one, mean over the steps, and that one's own reason.
CULPRITS = """\
SELECT
    c.rank, c.culprit_rank, c.sub_cause,
    (sum(c.total_ns) / any_value(s.step_count))::BIGINT AS total_ns,
    sum(c.total_ns) / any_value(s.step_count * s.mean_ns) AS step_share,
    any_value(s.step_count) AS step_count
FROM v1.gap_cause AS c
INNER JOIN v1.step_gap AS g ON c.rank = g.rank AND c.step_id = g.step_id AND NOT g.is_boundary
INNER JOIN v1.gap_summary AS s ON c.rank = s.rank AND s.measure = 'observed'
WHERE c.gap_class = 'R3' AND c.culprit_rank <> c.rank
GROUP BY c.rank, c.culprit_rank, c.sub_cause
ORDER BY total_ns DESC, c.rank, c.culprit_rank, c.sub_cause"""

CLOCKS = """\
SELECT
    rank, offset_ns, drift_ppb, residual_p5_ns, residual_p95_ns, residual_ns, match_count, method,
    jump_ns, jump_steps
FROM v1.rank_clock
ORDER BY rank"""

ARRIVALS = """\
SELECT
    a.rank, a.type, coalesce(p.group_desc, a.group_name) AS process_group,
    a.op_count, a.matched_count, a.last_count, a.clear_last_count,
    a.median_transfer_ns, a.wait_ns, a.jitter_wait_ns
FROM v1.arrival_summary AS a
LEFT JOIN (
    SELECT rank, group_name, min(group_desc) AS group_desc
    FROM v1.process_group
    GROUP BY rank, group_name
) AS p ON a.rank = p.rank AND a.group_name = p.group_name
ORDER BY a.wait_ns DESC, a.rank, a.type, process_group
LIMIT 64"""

LAST = """\
SELECT
    rank,
    sum(last_count)::BIGINT AS last_count,
    sum(clear_last_count)::BIGINT AS clear_last_count,
    sum(matched_count)::BIGINT AS matched_count,
    sum(op_count)::BIGINT AS op_count
FROM v1.arrival_summary
GROUP BY rank
ORDER BY clear_last_count DESC, last_count DESC, rank"""

# The run's step on every rung: mean and range over the steps that count.
LADDER = """\
SELECT
    w.removed,
    count(*)::BIGINT AS step_count,
    avg(w.step_ns)::BIGINT AS step_ns,
    min(w.step_ns) AS step_min_ns, max(w.step_ns) AS step_max_ns,
    avg(w.stretched_ns)::BIGINT AS stretched_ns,
    min(w.stretched_ns) AS stretched_min_ns, max(w.stretched_ns) AS stretched_max_ns,
    avg(r.step_ns - w.step_ns)::BIGINT AS saved_ns
FROM v1.what_if_step AS w
INNER JOIN v1.what_if_step AS r ON w.step_id = r.step_id AND r.removed = ''
WHERE NOT w.is_boundary
GROUP BY w.removed
ORDER BY length(w.removed), w.removed"""

# The same after each single change, the shortest first.
CHANGES = """\
SELECT
    c.change,
    count(*)::BIGINT AS step_count,
    avg(c.step_ns)::BIGINT AS step_ns,
    min(c.step_ns) AS step_min_ns, max(c.step_ns) AS step_max_ns,
    avg(r.step_ns - c.step_ns)::BIGINT AS saved_ns
FROM (
    SELECT step_id, change, max(step_ns) AS step_ns
    FROM v1.what_if_change
    GROUP BY step_id, change
) AS c
INNER JOIN v1.what_if_step AS r ON c.step_id = r.step_id AND r.removed = ''
WHERE NOT r.is_boundary
GROUP BY c.change
ORDER BY saved_ns DESC, c.change"""


# How the device's clock differs between the long steps of the run's rank and its others, while
# they compute; no row unless samples cover every step. At equal clock cycles alone differ.
GPU_CLOCK = """\
WITH step AS (
    SELECT
        g.observed_ns, g.compute_ns, c.mean_hz, c.compute_cycles, c.covered_share,
        l.step_id IS NOT NULL AS is_long
    FROM v1.step_gap AS g
    INNER JOIN v1.gap_summary AS s ON g.rank = s.rank AND s.is_run AND s.measure = 'observed'
    LEFT JOIN v1.long_step AS l ON g.step_id = l.step_id
    LEFT JOIN v1.step_gpu_clock AS c ON g.rank = c.rank AND g.step_id = c.step_id
    WHERE NOT g.is_boundary
),

clock AS (
    SELECT
        sum(compute_cycles) FILTER (WHERE is_long) * 1e9
        / sum(compute_ns) FILTER (WHERE is_long) AS long_hz,
        sum(compute_cycles) FILTER (WHERE NOT is_long) * 1e9
        / sum(compute_ns) FILTER (WHERE NOT is_long) AS other_hz,
        avg(compute_cycles) FILTER (WHERE is_long)
        - avg(compute_cycles) FILTER (WHERE NOT is_long) AS more_cycles,
        avg(compute_ns) FILTER (WHERE is_long)
        - avg(compute_ns) FILTER (WHERE NOT is_long) AS more_ns
    FROM step
    HAVING min(coalesce(covered_share, 0)) >= 0.9 AND bool_or(is_long)
)

SELECT
    long_hz, other_hz,
    more_ns::BIGINT AS more_ns,
    (more_cycles * 1e9 / other_hz)::BIGINT AS equal_clock_ns,
    1 - more_cycles * 1e9 / other_hz / more_ns AS clock_share
FROM clock
WHERE more_ns > 0"""


def gaps() -> str:
    """One row a rank: every measure in the shown step, with mean and range; the run's rank first.

    `long` and `other`: means over the long steps and over the others, where steps are uneven.
    """
    lines = []
    for name in ("observed", "t_lb", "gap", *PARTS):
        column = name.lower()
        chosen = f"FILTER (WHERE measure = '{name}')"
        lines += [
            f"    max(shown_ns) {chosen} AS {column}_ns,",
            f"    max(mean_ns) {chosen} AS {column}_mean_ns,",
            f"    max(long_mean_ns) {chosen} AS {column}_long_ns,",
            f"    max(other_mean_ns) {chosen} AS {column}_other_ns,",
            f"    max(min_ns) {chosen} AS {column}_min_ns,",
            f"    max(max_ns) {chosen} AS {column}_max_ns,",
        ]
    body = "\n".join(lines)
    return f"""\
SELECT
    rank,
    any_value(step_count) AS step_count,
    any_value(shown_step_id) AS step_id,
    any_value(long_count) AS long_count,
{body}
    max(shown_ns) FILTER (WHERE measure = 'gap')
    / max(shown_ns) FILTER (WHERE measure = 'observed') AS gap_share,
    any_value(is_run) AS is_run,
    any_value(is_provisional) AS is_provisional
FROM v1.gap_summary
GROUP BY rank
ORDER BY is_run DESC, rank"""


def parts(rank: int, step_id: int) -> str:
    """One step of one rank from its length down to compute; T_lb is where the gap is used up."""
    return f"""\
SELECT
    observed_ns, r3_ns, r1_ns, r2_ns, floor_ns, unresolved_ns, carried_ns,
    t_lb_ns, h2_ns, h1_ns, work_ns, compute_ns
FROM v1.step_gap
WHERE rank = {rank} AND step_id = {step_id}"""


def causes(rank: int, step_id: int) -> str:
    """What each class of a step is made of, the longest first."""
    return f"""\
SELECT
    gap_class, sub_cause, culprit_rank, awaited_node, piece_count, total_ns, hidden_ns,
    total_ns / (
        SELECT observed_ns FROM v1.step_gap WHERE rank = {rank} AND step_id = {step_id}
    ) AS step_share
FROM v1.gap_cause
WHERE rank = {rank} AND step_id = {step_id}
ORDER BY total_ns DESC, gap_class, sub_cause, culprit_rank, awaited_node"""


def worst_step(rank: int, gap_class: str, sub_cause: str | None) -> str:
    """The step that has most of a class, or of one of its sub-causes."""
    part = "" if sub_cause is None else f" AND coalesce(sub_cause, '') = '{sub_cause}'"
    return f"""\
SELECT step_id FROM v1.gap_cause
WHERE rank = {rank} AND gap_class = '{gap_class}'{part}
GROUP BY step_id ORDER BY sum(total_ns) DESC, step_id LIMIT 1"""


def mechanisms(rank: int, step_id: int, *, of_mean: bool) -> str:
    """Each class and sub-cause with its ceiling `T/(T-R) - 1` and the ranges.

    In one step, or with the mean over the steps for it.
    """
    chosen = f"FILTER (WHERE step_id = {step_id})"
    total, share, ceiling = (
        (
            "avg(total_ns)::BIGINT",
            "sum(total_ns) / sum(observed_ns)",
            "sum(observed_ns) / nullif(sum(observed_ns) - sum(total_ns), 0) - 1",
        )
        if of_mean
        else tuple(f"max({name}) {chosen}" for name in ("total_ns", "step_share", "ceiling"))
    )
    return f"""\
SELECT
    gap_class, sub_cause,
    {total} AS total_ns,
    {share} AS step_share,
    {ceiling} AS ceiling,
    count(*)::BIGINT AS step_count,
    min(total_ns) AS total_min_ns, max(total_ns) AS total_max_ns,
    min(ceiling) AS ceiling_min, max(ceiling) AS ceiling_max
FROM (
    SELECT
        g.step_id, g.observed_ns, k.gap_class, k.sub_cause,
        coalesce(c.total_ns, 0) AS total_ns,
        coalesce(c.total_ns, 0) / g.observed_ns AS step_share,
        g.observed_ns / nullif(g.observed_ns - coalesce(c.total_ns, 0), 0) - 1 AS ceiling
    FROM v1.step_gap AS g
    CROSS JOIN (
        SELECT DISTINCT
            gap_class, CASE WHEN gap_class = 'R2' THEN sub_cause ELSE '' END AS sub_cause
        FROM v1.gap_cause
        WHERE rank = {rank} AND gap_class IN ('R1', 'R2', 'R3', 'H1', 'H2')
    ) AS k
    LEFT JOIN (
        SELECT
            step_id, gap_class, CASE WHEN gap_class = 'R2' THEN sub_cause ELSE '' END AS sub_cause,
            sum(total_ns)::BIGINT AS total_ns
        FROM v1.gap_cause
        WHERE rank = {rank}
        GROUP BY ALL
    ) AS c ON g.step_id = c.step_id AND k.gap_class = c.gap_class AND k.sub_cause = c.sub_cause
    WHERE g.rank = {rank} AND NOT g.is_boundary
) AS per_step
GROUP BY gap_class, sub_cause
ORDER BY gap_class LIKE 'H%', 3 DESC, gap_class, sub_cause"""


def bounds(rank: int, step_id: int) -> str:
    """The bound of a rank beside what it would be with other limits."""
    return f"""\
SELECT
    b.limits,
    max(b.bound_ns) FILTER (WHERE s.step_id = {step_id}) AS bound_ns,
    count(*)::BIGINT AS step_count, min(b.bound_ns) AS bound_min_ns, max(b.bound_ns) AS bound_max_ns
FROM v1.step_bound AS s
INNER JOIN v1.step_gap AS g ON s.rank = g.rank AND s.step_id = g.step_id
CROSS JOIN LATERAL (
    VALUES
        (0, 'equal memory, host issue order (T_lb)', s.t_lb_ns),
        (1, 'one more buffer of each kind', s.plus_one_ns),
        (2, 'compute engine in any order', s.free_engine_ns),
        (3, 'communicators in any order', s.free_link_ns),
        (4, '{SHORTEST}', s.shortest_ns),
        (5, 'compute engine alone', s.engine_ns),
        (6, 'busiest communicator alone', s.link_ns)
) AS b (place, limits, bound_ns)
WHERE s.rank = {rank} AND NOT g.is_boundary AND b.bound_ns IS NOT NULL
GROUP BY b.place, b.limits
ORDER BY b.place"""


def chain(step_id: int) -> str:
    """The binding chain of a step, node by node."""
    return f"""\
SELECT chain_position, rank, node, rule, lane, start_ns, length_ns
FROM v1.binding_chain
WHERE step_id = {step_id}
ORDER BY chain_position"""


def stretches(step_id: int) -> str:
    """The same with what follows on the compute engine in one pass as one row."""
    return f"""\
SELECT
    lane, stretch, any_value(rank) AS rank,
    arg_min(rule, chain_position) AS rule,
    regexp_extract(arg_max(node, length_ns), '^[A-Z]+') AS kind,
    arg_min(node, chain_position) AS first_node, arg_max(node, chain_position) AS last_node,
    count(*)::BIGINT AS node_count,
    min(end_ns - length_ns)::BIGINT AS start_ns, max(end_ns) AS end_ns,
    sum(length_ns)::BIGINT AS length_ns
FROM v1.binding_chain
WHERE step_id = {step_id}
GROUP BY lane, stretch
ORDER BY stretch"""
