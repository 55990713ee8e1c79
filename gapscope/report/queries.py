"""Every query behind the report, as the text that a reader can paste into `gapscope sql`.

Only ranks, steps and lengths that came out of the run are put into them, as integers.
"""

from __future__ import annotations

from dataclasses import dataclass

# Measures whose value in the median step is reported with its range over the steps.
MEASURES = (
    "step_ns",
    "busy_ns",
    "idle_ns",
    "compute_ns",
    "noncomm_ns",
    "comm_ns",
    "exposed_comm_ns",
    "copy_ns",
    "compute_absent_ns",
    "launch_starved_ns",
    "blocking_ns",
    "stalled_ns",
    "tail_ns",
)

ABSENT_CLASSES = ("launch_starved", "blocking", "stalled", "tail")

RANKS = "FROM v1.rank ORDER BY rank"

RANK_PARTS = "SELECT rank, part FROM v1.rank_part ORDER BY rank"

# Slowest first: one such rank is enough for the label.
PERTURBATION = """\
SELECT
    rank, verdict, profiled_count, profiled_median_ns, profiled_min_ns, profiled_max_ns,
    reference_count, reference_median_ns, reference_min_ns, reference_max_ns, slowdown, spread_ns
FROM v1.perturbation
ORDER BY slowdown DESC, rank
LIMIT 64"""

QUALITY = """\
SELECT
    coalesce(string_agg(rank::VARCHAR, ', ' ORDER BY rank), 'run') AS ranks,
    check_name, status, detail, forbids
FROM v1.capture_quality
GROUP BY check_name, status, detail, forbids
ORDER BY
    CASE status WHEN 'fail' THEN 0 WHEN 'warn' THEN 1 WHEN 'info' THEN 2 ELSE 3 END,
    check_name, min(rank) NULLS FIRST, detail"""

DEVICE_OPS = """\
SELECT r.rank, coalesce(o.op_count, 0) AS op_count
FROM v1.rank AS r
LEFT JOIN (
    SELECT rank, sum(op_count)::BIGINT AS op_count FROM v1.kernel_inventory GROUP BY rank
) AS o ON r.rank = o.rank
ORDER BY r.rank"""

SHARED_DEVICES = """\
SELECT string_agg(rank::VARCHAR, ', ' ORDER BY rank) AS ranks
FROM v1.rank
WHERE device_uuid IS NOT NULL
GROUP BY device_uuid
HAVING count(*) > 1
ORDER BY min(rank)"""

ANCHORS = """\
SELECT rank, any_value(source) AS source
FROM v1.step
GROUP BY rank
ORDER BY rank"""

STEPS = """\
SELECT
    b.rank, b.step_id, s.label, b.step_ns, b.compute_ns,
    b.launch_starved_ns, b.blocking_ns, b.stalled_ns, b.tail_ns,
    b.comm_ns, b.exposed_comm_ns, b.copy_ns, b.busy_ns, b.idle_ns,
    coalesce(s.boundary_reason, '') AS boundary
FROM v1.step_budget AS b
LEFT JOIN v1.step AS s ON b.rank = s.rank AND b.step_id = s.step_id
WHERE b.projection = 'device'
ORDER BY b.rank, b.step_id"""

CAPTURE = """\
SELECT
    rank, step_id, 'capture' AS label, step_ns, compute_ns,
    launch_starved_ns, blocking_ns, stalled_ns, tail_ns,
    comm_ns, exposed_comm_ns, copy_ns, busy_ns, idle_ns, '' AS boundary
FROM v1.step_budget
WHERE projection = 'capture'
ORDER BY rank"""

# Only waits that an op follows can hold compute back. Their resolved share whether blocking is
# a lower or an upper bound. A wait on a known record of a stream without an earlier op is resolved:
# there is nothing to wait for.
WAITS = """\
SELECT
    rank,
    count(DISTINCT wait_id)::BIGINT AS wait_count,
    count(DISTINCT wait_id) FILTER (WHERE producer_op_id IS NOT NULL OR is_complete)::BIGINT
        AS resolved_count,
    wait_count - resolved_count AS unresolved_count,
    unresolved_count / wait_count AS unresolved_share
FROM v1.event_edge
WHERE consumer_op_id IS NOT NULL
GROUP BY rank
ORDER BY rank"""

UNMATCHED = """\
SELECT
    name, time_class,
    sum(op_count)::BIGINT AS op_count,
    sum(volume_ns)::BIGINT AS volume_ns,
    sum(volume_ns) / (SELECT sum(volume_ns) FROM v1.kernel_inventory) AS volume_share,
    count(*) OVER () AS name_count,
    sum(sum(volume_ns)) OVER () / (SELECT sum(volume_ns) FROM v1.kernel_inventory) AS all_share
FROM v1.kernel_inventory
WHERE rule_id = 'unmatched'
GROUP BY name, time_class
ORDER BY volume_ns DESC, name, time_class
LIMIT 3"""

RULES = """\
SELECT
    k.priority,
    coalesce(k.rule_id, m.rule_id) AS rule_id,
    k.pattern,
    coalesce(m.time_class, k.time_class) AS time_class,
    coalesce(m.op_class, k.op_class) AS op_class,
    coalesce(m.op_count, 0) AS op_count,
    coalesce(m.volume_ns, 0) AS volume_ns,
    coalesce(m.volume_share, 0.0) AS volume_share
FROM v1.kernel_rule AS k
FULL JOIN (
    SELECT
        rule_id, time_class, op_class,
        sum(op_count)::BIGINT AS op_count,
        sum(volume_ns)::BIGINT AS volume_ns,
        sum(volume_ns) / sum(sum(volume_ns)) OVER () AS volume_share
    FROM v1.rule_share
    GROUP BY rule_id, time_class, op_class
) AS m ON k.rule_id = m.rule_id
ORDER BY volume_ns DESC, k.priority NULLS LAST, rule_id, time_class, op_class"""

COPIES = """\
SELECT rank, kind, copy_kind, src_memory, dst_memory, op_count, bytes, volume_ns, bytes_per_ns
FROM v1.copy_summary
ORDER BY rank, volume_ns DESC, kind, copy_kind, src_memory, dst_memory"""

COLLECTIVES = """\
SELECT
    coalesce(c.type, 'unknown') AS type,
    coalesce(c.group_desc, c.group_name) AS process_group,
    c.group_size,
    c.dtype,
    count(DISTINCT c.rank)::BIGINT AS rank_count,
    count(*)::BIGINT AS call_count,
    count(o.op_id)::BIGINT AS op_count,
    min(o.end_ns - o.start_ns) AS min_ns,
    quantile_disc(o.end_ns - o.start_ns, 0.5) AS median_ns,
    max(o.end_ns - o.start_ns) AS max_ns
FROM v1.collective AS c
LEFT JOIN v1.op_launch AS o ON c.rank = o.rank AND c.op_id = o.op_id
GROUP BY ALL
ORDER BY call_count DESC, type, process_group, c.group_size, c.dtype
LIMIT 40"""

COMMUNICATION = """\
SELECT
    name,
    count(DISTINCT rank)::BIGINT AS rank_count,
    sum(op_count)::BIGINT AS op_count,
    sum(volume_ns)::BIGINT AS volume_ns,
    min(min_ns) AS min_ns,
    max(max_ns) AS max_ns
FROM v1.kernel_inventory
WHERE time_class = 'communication'
GROUP BY name
ORDER BY volume_ns DESC, name
LIMIT 40"""


@dataclass(frozen=True, slots=True)
class Window:
    """One window of one rank: a step of the device projection, or the whole capture."""

    rank: int
    projection: str
    step_id: int

    @property
    def where(self) -> str:
        """The condition that selects it in every view of that grain."""
        return (
            f"rank = {self.rank} AND projection = '{self.projection}' AND step_id = {self.step_id}"
        )


def _of_steps(projection: str) -> str:
    boundary = " AND NOT is_boundary" if projection == "device" else ""
    return f"projection = '{projection}'{boundary} AND step_ns > 0"


def summary(projection: str, step_id: int | None = None) -> str:
    """One row a rank: each measure in the median step, its smallest and largest over the steps.

    The median step is a real step (the lower median), so its parts close to the nanosecond. With
    `step_id` it is that one on every rank that has it. The rank whose compute is absent longest
    comes first.
    """
    is_median = """\
row_number() OVER (PARTITION BY rank ORDER BY step_ns, step_id)
        = (count(*) OVER (PARTITION BY rank) + 1) // 2"""
    if step_id is not None:
        is_median = f"""\
CASE
            WHEN bool_or(step_id = {step_id}) OVER (PARTITION BY rank) THEN step_id = {step_id}
            ELSE {is_median}
        END"""
    lines = []
    for name in MEASURES:
        lines += [
            f"    max({name}) FILTER (WHERE is_median) AS {name},",
            f"    min({name}) AS {name[:-3]}_min_ns, max({name}) AS {name[:-3]}_max_ns,",
        ]
    body = "\n".join(lines)
    return f"""\
SELECT
    rank,
    count(*)::BIGINT AS step_count,
    max(step_id) FILTER (WHERE is_median) AS median_step_id,
{body}
    max(compute_ns / step_ns) FILTER (WHERE is_median) AS compute_share,
    max(copy_ns / step_ns) FILTER (WHERE is_median) AS copy_share,
    max(idle_ns / step_ns) FILTER (WHERE is_median) AS idle_share
FROM (
    SELECT
        *,
        {is_median} AS is_median
    FROM v1.step_budget
    WHERE {_of_steps(projection)}
) AS placed
GROUP BY rank
ORDER BY compute_absent_ns DESC, rank"""


def _graph_starved(rank: int, projection: str) -> str:
    return f"""\
    SELECT p.step_id, sum(p.dur_ns)::BIGINT AS graph_ns, count(*)::BIGINT AS piece_count
    FROM v1.absent_piece AS p
    INNER JOIN v1.gpu_op AS g ON p.rank = g.rank AND p.op_id = g.op_id
    WHERE p.rank = {rank} AND p.projection = '{projection}'
        AND p.absent_class = 'launch_starved'
        AND (g.kind = 'graph' OR g.graph_node_id IS NOT NULL)
    GROUP BY p.step_id"""


def graph_starved(window: Window) -> str:
    """Launch-starved time of a window that ends with the launch of a CUDA graph; always one row."""
    return f"""\
SELECT
    coalesce(sum(graph_ns), 0)::BIGINT AS graph_ns,
    coalesce(sum(piece_count), 0)::BIGINT AS piece_count
FROM (
{_graph_starved(window.rank, window.projection)}
) AS ended
WHERE step_id = {window.step_id}"""


def ceilings(window: Window) -> str:
    """One row a class of compute-absent time: its share of the window and `T/(T-R) - 1`.

    What ends with the launch of a CUDA graph is left out of launch-starved time: one call starts
    many nodes, and says nothing of the cost of launches.
    """
    return f"""\
SELECT
    absent_class,
    max(absent_ns) FILTER (WHERE step_id = {window.step_id}) AS absent_ns,
    count(*)::BIGINT AS step_count,
    min(absent_ns) AS absent_min_ns, max(absent_ns) AS absent_max_ns,
    max(absent_ns / step_ns) FILTER (WHERE step_id = {window.step_id}) AS step_share,
    max(ceiling) FILTER (WHERE step_id = {window.step_id}) AS ceiling,
    min(ceiling) AS ceiling_min, max(ceiling) AS ceiling_max
FROM (
    SELECT
        b.step_id, b.step_ns, c.absent_class, c.absent_ns,
        b.step_ns / nullif(b.step_ns - c.absent_ns, 0) - 1 AS ceiling
    FROM v1.step_budget AS b
    LEFT JOIN (
{_graph_starved(window.rank, window.projection)}
    ) AS g ON b.step_id = g.step_id
    CROSS JOIN LATERAL (
        VALUES ('launch_starved', b.launch_starved_ns - coalesce(g.graph_ns, 0)),
            ('blocking', b.blocking_ns), ('stalled', b.stalled_ns), ('tail', b.tail_ns)
    ) AS c (absent_class, absent_ns)
    WHERE b.rank = {window.rank} AND {_of_steps(window.projection)}
) AS per_step
GROUP BY absent_class
ORDER BY ceiling DESC NULLS FIRST, absent_class"""


def budget(window: Window) -> str:
    """The parts of one window, from its length down to its compute."""
    return f"""\
SELECT step_ns, launch_starved_ns, blocking_ns, stalled_ns, tail_ns, compute_ns
FROM v1.step_budget
WHERE {window.where}"""


def _blame(window: Window, columns: str) -> str:
    return f"""\
SELECT
    {columns},
    sum(least(c.end_ns, w.end_ns) - greatest(c.start_ns, w.start_ns))::BIGINT AS blamed_ns,
    sum(least(c.end_ns, w.end_ns) - greatest(c.start_ns, w.start_ns))
    / any_value(w.end_ns - w.start_ns) AS step_share,
    count(*)::BIGINT AS piece_count
FROM v1.step_window AS w
INNER JOIN v1.blame_chain AS c
    ON w.rank = c.rank AND w.start_ns < c.end_ns AND w.end_ns > c.start_ns
LEFT JOIN v1.op AS o ON c.rank = o.rank AND c.op_id = o.op_id
WHERE w.rank = {window.rank}
    AND w.projection = '{window.projection}' AND w.step_id = {window.step_id}
GROUP BY {columns}
ORDER BY blamed_ns DESC, {columns}"""


def blame(window: Window) -> str:
    """What really held the blocking time of a window, by what the op did and its class."""
    return _blame(window, "c.reason, c.time_class")


def blame_names(window: Window) -> str:
    """The same by op name, the largest first."""
    query = _blame(window, "c.reason, c.time_class, o.name") + "\nLIMIT 12"
    return query.replace("AS piece_count", "AS piece_count,\n    count(*) OVER () AS name_count")


def beside_blocking(window: Window) -> str:
    """Communication that ran while compute was blocked, by name, the longest first."""
    return f"""\
SELECT
    o.name,
    sum(least(o.end_ns, p.end_ns) - greatest(o.start_ns, p.start_ns))::BIGINT AS overlap_ns,
    count(DISTINCT o.op_id)::BIGINT AS op_count
FROM v1.absent_piece AS p
INNER JOIN v1.op AS o
    ON p.rank = o.rank AND o.start_ns < p.end_ns AND o.end_ns > p.start_ns
WHERE p.rank = {window.rank}
    AND p.projection = '{window.projection}' AND p.step_id = {window.step_id}
    AND p.absent_class = 'blocking' AND o.time_class = 'communication'
GROUP BY o.name
ORDER BY overlap_ns DESC, o.name
LIMIT 12"""


def axes(window: Window) -> str:
    """How long each parallel dimension communicated while compute was blocked.

    By what the process group calls itself; data first, since its groups also name others.
    """
    return f"""\
SELECT
    axis, sum(overlap_ns)::BIGINT AS overlap_ns
FROM (
    SELECT
        CASE
            WHEN o.op_class IN ('deep_ep', 'hybrid_ep') THEN 'ep'
            WHEN regexp_matches(lower(g.group_desc), 'data|fsdp|(^|_)dp(_|$)') THEN 'dp'
            WHEN regexp_matches(lower(g.group_desc), 'expert|(^|_)ep(_|$)') THEN 'ep'
            WHEN regexp_matches(lower(g.group_desc), 'context|(^|_)cp(_|$)') THEN 'cp'
            WHEN regexp_matches(lower(g.group_desc), 'tensor|(^|_)tp(_|$)') THEN 'tp'
            WHEN regexp_matches(lower(g.group_desc), 'pipeline|(^|_)pp(_|$)') THEN 'pp'
        END AS axis,
        least(o.end_ns, p.end_ns) - greatest(o.start_ns, p.start_ns) AS overlap_ns
    FROM v1.absent_piece AS p
    INNER JOIN v1.op AS o
        ON p.rank = o.rank AND o.start_ns < p.end_ns AND o.end_ns > p.start_ns
    LEFT JOIN (
        SELECT rank, op_id, any_value(group_desc) AS group_desc
        FROM v1.collective
        GROUP BY rank, op_id
    ) AS g ON o.rank = g.rank AND o.op_id = g.op_id
    WHERE p.{window.where.replace(" AND ", " AND p.")}
        AND p.absent_class = 'blocking' AND o.time_class = 'communication'
) AS met
WHERE axis IS NOT NULL
GROUP BY axis
ORDER BY overlap_ns DESC, axis"""


def traits(window: Window) -> str:
    """What the kernels and copies of a window are like, on which some advice depends."""
    return f"""\
SELECT
    quantile_disc(o.dur_ns, 0.5) FILTER (WHERE o.time_class = 'compute') AS compute_median_ns,
    coalesce(sum(o.dur_ns) FILTER (WHERE o.time_class = 'compute'), 0)::BIGINT AS compute_ns,
    coalesce(sum(o.dur_ns) FILTER (WHERE o.time_class = 'graph'), 0)::BIGINT AS graph_ns,
    coalesce(sum(o.dur_ns) FILTER (WHERE o.time_class = 'compute' AND regexp_matches(
        lower(o.name), 'transpose|nchwtonhwc|nhwctonchw|direct_copy_kernel|catarray'
    )), 0)::BIGINT AS layout_ns,
    coalesce(sum(o.dur_ns) FILTER (WHERE o.copy_kind = 'HtoD'), 0)::BIGINT AS to_device_ns,
    coalesce(sum(o.dur_ns) FILTER (WHERE o.copy_kind = 'DtoH'), 0)::BIGINT AS to_host_ns,
    (
        SELECT coalesce(sum(a.call_count), 0) FROM v1.api_summary AS a
        WHERE a.rank = {window.rank} AND contains(a.name, 'GraphLaunch')
    )::BIGINT AS graph_launch_count,
    (
        SELECT sum(l.wait_ns) FROM v1.rank_lateness AS l
        WHERE l.rank = {window.rank} AND l.step_id = {window.step_id} AND l.is_resolved
            AND '{window.projection}' = 'device'
    )::BIGINT AS rank_wait_ns
FROM v1.step_window AS w
INNER JOIN v1.op AS o ON w.rank = o.rank AND o.start_ns < w.end_ns AND o.end_ns > w.start_ns
WHERE w.{window.where.replace(" AND ", " AND w.")}"""


def starved_host(window: Window) -> str:
    """What the thread that launches the late op did while compute was launch-starved.

    Calls of one thread nest or follow each other, so the outermost ones sum without overlap.
    """
    return f"""\
WITH piece AS (
    SELECT
        o.launch_tid AS tid, p.start_ns, p.end_ns,
        sum(p.dur_ns) OVER (PARTITION BY o.launch_tid ORDER BY p.start_ns) - p.dur_ns AS before_ns
    FROM v1.absent_piece AS p
    LEFT JOIN v1.op AS o ON p.rank = o.rank AND p.op_id = o.op_id
    WHERE p.rank = {window.rank}
        AND p.projection = '{window.projection}' AND p.step_id = {window.step_id}
        AND p.absent_class = 'launch_starved'
),
call AS (
    SELECT tid, name_id, start_ns, end_ns
    FROM v1.api_call
    WHERE rank = {window.rank}
        AND tid IN (SELECT tid FROM piece)
        AND start_ns < (SELECT max(end_ns) FROM piece)
        AND end_ns > (SELECT min(start_ns) FROM piece)
    QUALIFY coalesce(end_ns > max(end_ns) OVER (
        PARTITION BY tid ORDER BY start_ns, end_ns DESC, call_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), true)
),
met AS (
    SELECT
        c.tid, c.name_id,
        coalesce(l.before_ns + least(c.end_ns, l.end_ns) - l.start_ns, 0)
        - coalesce(f.before_ns + least(c.start_ns, f.end_ns) - f.start_ns, 0) AS overlap_ns
    FROM call AS c
    ASOF LEFT JOIN piece AS f ON c.tid = f.tid AND c.start_ns >= f.start_ns
    ASOF LEFT JOIN piece AS l ON c.tid = l.tid AND c.end_ns >= l.start_ns
),
spent AS (
    SELECT
        'in a call' AS place, m.tid, n.name,
        count(*)::BIGINT AS call_count, sum(m.overlap_ns)::BIGINT AS overlap_ns
    FROM met AS m
    LEFT JOIN v1.name AS n ON n.rank = {window.rank} AND m.name_id = n.name_id
    WHERE m.overlap_ns > 0
    GROUP BY m.tid, n.name
    UNION ALL
    SELECT
        CASE WHEN p.tid IS NULL THEN 'launch unknown' ELSE 'outside calls' END AS place,
        p.tid, NULL AS name, NULL AS call_count,
        (sum(p.end_ns - p.start_ns) - coalesce((
            SELECT sum(m.overlap_ns) FROM met AS m WHERE m.tid = p.tid
        ), 0))::BIGINT AS overlap_ns
    FROM piece AS p
    GROUP BY p.tid
)
SELECT
    place, tid, name, call_count, overlap_ns,
    overlap_ns / sum(overlap_ns) OVER () AS share,
    sum(overlap_ns) OVER ()::BIGINT AS starved_ns
FROM spent
WHERE overlap_ns > 0
ORDER BY overlap_ns DESC, place, tid, name
LIMIT 15"""


def fsdp_ranges(rank: int) -> str:
    """How many ranges of a rank are those of FSDP."""
    return f"""\
SELECT count(*)::BIGINT AS range_count
FROM v1.range AS r
INNER JOIN v1.name AS n ON r.rank = n.rank AND r.name_id = n.name_id
WHERE r.rank = {rank} AND n.name LIKE 'FSDP::%'"""


def pieces(window: Window) -> str:
    """How many pieces each class of compute-absent time of a window is made of."""
    return f"""\
SELECT
    absent_class,
    count(*)::BIGINT AS piece_count,
    sum(dur_ns)::BIGINT AS total_ns,
    quantile_disc(dur_ns, 0.5) AS median_ns,
    max(dur_ns) AS max_ns,
    max(dur_ns) / sum(dur_ns) AS max_share,
    count(*) FILTER (WHERE dur_ns < 30000)::BIGINT AS short_count,
    coalesce(sum(dur_ns) FILTER (WHERE dur_ns < 30000), 0)::BIGINT AS short_ns,
    count(*) FILTER (WHERE dur_ns > 1000000)::BIGINT AS long_count,
    coalesce(sum(dur_ns) FILTER (WHERE dur_ns > 1000000), 0)::BIGINT AS long_ns
FROM v1.absent_piece
WHERE {window.where}
GROUP BY absent_class
ORDER BY total_ns DESC, absent_class"""


def kernels(window: Window) -> str:
    """Device ops by name whose work volume inside a window is above 1 % of its length."""
    return f"""\
SELECT
    o.name, o.time_class, o.op_class, o.rule_id,
    count(*)::BIGINT AS op_count,
    sum(least(o.end_ns, w.end_ns) - greatest(o.start_ns, w.start_ns))::BIGINT AS volume_ns,
    sum(least(o.end_ns, w.end_ns) - greatest(o.start_ns, w.start_ns))
    / any_value(w.end_ns - w.start_ns) AS step_share
FROM v1.step_window AS w
INNER JOIN v1.op AS o ON w.rank = o.rank AND w.start_ns < o.end_ns AND w.end_ns > o.start_ns
WHERE w.rank = {window.rank}
    AND w.projection = '{window.projection}' AND w.step_id = {window.step_id}
GROUP BY o.name, o.time_class, o.op_class, o.rule_id
HAVING step_share > 0.01
ORDER BY volume_ns DESC, o.name, o.time_class, o.op_class, o.rule_id"""


def classes(window: Window) -> str:
    """What the device did in a window, by class and finer class."""
    return f"""\
SELECT
    time_class, op_class, op_count, unmatched_count, volume_ns, volume_share, busy_ns, busy_share
FROM v1.class_time
WHERE {window.where}
ORDER BY volume_ns DESC, time_class, op_class"""


def streams(rank: int) -> str:
    """Work of each stream of a rank over the whole capture."""
    return f"""\
SELECT
    stream, priority, main_class, op_count, busy_ns, volume_ns,
    compute_ns, communication_ns, packing_ns, copy_ns, memset_ns
FROM v1.stream_work
WHERE rank = {rank}
ORDER BY busy_ns DESC, stream
LIMIT 40"""


def api_calls(rank: int) -> str:
    """CUDA API functions of a rank by summed duration, the first fifteen."""
    return f"""\
SELECT name, tid, domain, call_count, volume_ns, median_ns, max_ns, failed_count
FROM v1.api_summary
WHERE rank = {rank}
ORDER BY volume_ns DESC, name, tid
LIMIT 15"""


def pacing(window: Window) -> str:
    """How far each launching thread ran ahead of the device in a step, or in every step."""
    step = f" AND step_id = {window.step_id}" if window.projection == "device" else ""
    return f"""\
SELECT
    step_id, launch_tid, launch_count, op_count, launching_ns, launches_per_ms,
    run_ahead_p05_ns, run_ahead_median_ns, run_ahead_p95_ns, late_count
FROM v1.launch_pacing
WHERE rank = {window.rank} AND unit IS NULL{step}
ORDER BY step_id NULLS LAST, launch_count DESC, launch_tid
LIMIT 20"""
