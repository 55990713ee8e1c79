-- view:       v1.profiler_activity
-- purpose:    What the profiler recorded of its own work, and of stalls in CUDA itself. It never says how much slower the run was: see v1.perturbation.
-- grain:      rank, name
-- depends-on: v1.overhead, v1.name, v1.step
-- materialise: run
-- since:      1
-- columns:
--   rank           BIGINT  -  Global rank.
--   name           VARCHAR -  What was done, in the tool's words.
--   is_tool        BOOLEAN -  Work of the profiler; else CUDA's own, which a run without one does too.
--   record_count   BIGINT  -  Records.
--   volume_ns      BIGINT  ns Sum of their lengths over all threads.
--   in_steps_ns    BIGINT  ns Part of it inside the host windows of steps that count.
--   in_boundary_ns BIGINT  ns Part of it inside those of boundary steps.
CREATE OR REPLACE VIEW v1.profiler_activity AS
WITH stretch AS (
    SELECT
        o.rank,
        n.name,
        o.start_ns,
        o.end_ns
    FROM v1.overhead AS o
    LEFT JOIN v1.name AS n ON o.rank = n.rank AND o.name_id = n.name_id
    WHERE o.end_ns >= o.start_ns
),

inside AS (
    SELECT
        o.rank,
        o.name,
        sum(least(o.end_ns, s.host_end_ns) - greatest(o.start_ns, s.host_start_ns))
        FILTER (WHERE NOT s.is_boundary) AS in_steps_ns,
        sum(least(o.end_ns, s.host_end_ns) - greatest(o.start_ns, s.host_start_ns))
        FILTER (WHERE s.is_boundary) AS in_boundary_ns
    FROM stretch AS o
    INNER JOIN v1.step AS s
        ON o.rank = s.rank AND o.start_ns < s.host_end_ns AND o.end_ns > s.host_start_ns
    GROUP BY o.rank, o.name
),

total AS (
    SELECT
        rank,
        name,
        count(*) AS record_count,
        sum(end_ns - start_ns) AS volume_ns
    FROM stretch
    GROUP BY rank, name
)

SELECT
    t.rank,
    coalesce(t.name, '[unknown]') AS name,
    coalesce(t.name, '') NOT LIKE '% (CUDA)' AS is_tool,
    t.record_count,
    t.volume_ns::BIGINT AS volume_ns,
    coalesce(i.in_steps_ns, 0)::BIGINT AS in_steps_ns,
    coalesce(i.in_boundary_ns, 0)::BIGINT AS in_boundary_ns
FROM total AS t
LEFT JOIN inside AS i ON t.rank = i.rank AND t.name IS NOT DISTINCT FROM i.name;
