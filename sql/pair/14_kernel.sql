-- view:       pair.kernel
-- purpose:    Device ops of a rank over the steps that count, by name: how many, of what size, how long.
-- grain:      rank, name, time_class, op_class
-- depends-on: v1.op, v1.gpu_op, v1.step, v1.rank
-- materialise: side
-- since:      1
-- columns:
--   rank       BIGINT  -  Global rank.
--   name       VARCHAR -  Kernel or copy.
--   time_class VARCHAR -  compute, communication, packing, copy, memset or graph.
--   op_class   VARCHAR -  Finer class.
--   op_count   BIGINT  -  Ops launched in the steps that count, or in the whole capture.
--   blocks     DOUBLE  -  Thread blocks of all of them; NULL where the capture has no grids.
--   volume_ns  BIGINT  ns Sum of their durations.
CREATE OR REPLACE VIEW pair.kernel AS
WITH counted AS (
    SELECT
        rank,
        host_start_ns AS start_ns,
        host_end_ns AS end_ns
    FROM v1.step
    WHERE getvariable('gapscope_projection') = 'device' AND NOT is_boundary
    UNION ALL
    SELECT
        rank,
        -4000000000000000000 AS start_ns,
        4000000000000000000 AS end_ns
    FROM v1.rank
    WHERE getvariable('gapscope_projection') = 'capture'
),

-- An op whose launch was not captured counts where it runs.
launched AS (
    SELECT
        rank,
        op_id,
        name,
        time_class,
        op_class,
        dur_ns,
        coalesce(launch_start_ns, start_ns) AS at_ns
    FROM v1.op
),

inside AS (
    SELECT
        l.*,
        c.end_ns
    FROM launched AS l
    ASOF INNER JOIN counted AS c ON l.rank = c.rank AND l.at_ns >= c.start_ns
)

SELECT
    i.rank,
    i.name,
    i.time_class,
    i.op_class,
    count(*) AS op_count,
    sum(g.grid_x::DOUBLE * g.grid_y * g.grid_z) AS blocks,
    sum(i.dur_ns)::BIGINT AS volume_ns
FROM inside AS i
LEFT JOIN v1.gpu_op AS g ON i.rank = g.rank AND i.op_id = g.op_id
WHERE i.at_ns < i.end_ns
GROUP BY i.rank, i.name, i.time_class, i.op_class;
