-- view:       v1.stream_work
-- purpose:    What each stream did: union of its busy time and work volume by class.
-- grain:      rank, stream
-- depends-on: v1.device_op, v1.stream
-- materialise: no
-- since:      1
-- columns:
--   rank             BIGINT   -  Global rank.
--   stream           BIGINT   -  Stream id.
--   priority         BIGINT   -  Stream priority; NULL when the source does not state it.
--   op_count         BIGINT   -  Ops.
--   busy_ns          BIGINT   ns Union of its ops.
--   volume_ns        BIGINT   ns Work volume: sum of durations.
--   compute_ns       BIGINT   ns Work volume of compute and graph ops.
--   communication_ns BIGINT   ns Work volume of communication.
--   packing_ns       BIGINT   ns Work volume of packing.
--   copy_ns          BIGINT   ns Work volume of copies.
--   memset_ns        BIGINT   ns Work volume of memsets.
--   main_class       VARCHAR  -  Class with the largest volume.
CREATE OR REPLACE VIEW v1.stream_work AS
WITH added AS (
    SELECT
        o.rank,
        o.stream,
        o.time_class,
        o.dur_ns,
        greatest(
            0,
            o.end_ns - greatest(
                o.start_ns,
                coalesce(
                    max(o.end_ns) OVER (
                        PARTITION BY o.rank, o.stream
                        ORDER BY o.start_ns, o.op_id
                        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                    ),
                    o.start_ns
                )
            )
        ) AS added_ns
    FROM v1.device_op AS o
),

by_class AS (
    SELECT
        rank,
        stream,
        time_class,
        count(*) AS op_count,
        sum(added_ns) AS added_ns,
        sum(dur_ns) AS volume_ns
    FROM added
    GROUP BY rank, stream, time_class
),

priority AS (
    SELECT
        rank,
        stream,
        min(priority) AS priority
    FROM v1.stream
    GROUP BY rank, stream
)

SELECT
    b.rank,
    b.stream,
    any_value(p.priority) AS priority,
    sum(b.op_count)::BIGINT AS op_count,
    sum(b.added_ns)::BIGINT AS busy_ns,
    sum(b.volume_ns)::BIGINT AS volume_ns,
    coalesce(sum(b.volume_ns) FILTER (WHERE b.time_class IN ('compute', 'graph')), 0)::BIGINT
        AS compute_ns,
    coalesce(sum(b.volume_ns) FILTER (WHERE b.time_class = 'communication'), 0)::BIGINT
        AS communication_ns,
    coalesce(sum(b.volume_ns) FILTER (WHERE b.time_class = 'packing'), 0)::BIGINT AS packing_ns,
    coalesce(sum(b.volume_ns) FILTER (WHERE b.time_class = 'copy'), 0)::BIGINT AS copy_ns,
    coalesce(sum(b.volume_ns) FILTER (WHERE b.time_class = 'memset'), 0)::BIGINT AS memset_ns,
    arg_max(b.time_class, b.volume_ns) AS main_class
FROM by_class AS b
LEFT JOIN priority AS p ON b.rank = p.rank AND b.stream = p.stream
GROUP BY b.rank, b.stream;
