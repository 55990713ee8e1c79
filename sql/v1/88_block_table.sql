-- view:       v1.block_table
-- purpose:    One line a unit, phase and step: what gathered it, computed it and reduced it, and for how long.
-- grain:      rank, step_id, unit, phase
-- depends-on: v1.op_unit, v1.device_op
-- materialise: no
-- since:      1
-- columns:
--   rank             BIGINT   -  Global rank.
--   step_id          BIGINT   -  Step.
--   unit             VARCHAR  -  Module FQN; '' for the root.
--   phase            VARCHAR  -  forward, backward or optimizer.
--   op_count         BIGINT   -  Device ops of all kinds, those without a column of their own (copies beside the compute) included.
--   agin_count       BIGINT   -  Ops: copy-ins of its all-gathers.
--   ag_count         BIGINT   -  Ops: its all-gathers.
--   agout_count      BIGINT   -  Ops: its copy-outs.
--   compute_count    BIGINT   -  Ops: its compute kernels (and graphs), optimizer included.
--   rsin_count       BIGINT   -  Ops: copy-ins of its reduce-scatters.
--   rs_count         BIGINT   -  Ops: its reduce-scatters.
--   ar_count         BIGINT   -  Ops: its all-reduces.
--   post_count       BIGINT   -  Ops: what follows its reduction.
--   agin_ns          BIGINT   ns Union of these; 0 without any.
--   ag_ns            BIGINT   ns Union of these; 0 without any.
--   agout_ns         BIGINT   ns Union of these; 0 without any.
--   compute_ns       BIGINT   ns Union of these; 0 without any.
--   rsin_ns          BIGINT   ns Union of these; 0 without any.
--   rs_ns            BIGINT   ns Union of these; 0 without any.
--   ar_ns            BIGINT   ns Union of these; 0 without any.
--   post_ns          BIGINT   ns Union of these; 0 without any.
--   compute_start_ns BIGINT   ns First start of its compute; NULL without any.
--   compute_end_ns   BIGINT   ns Last end of its compute.
-- audit block_table_counts_every_op:
--   SELECT a.table_count, b.op_count
--   FROM (SELECT coalesce(sum(t.op_count), 0) AS table_count FROM v1.block_table AS t) AS a
--   CROSS JOIN (SELECT count(*) AS op_count FROM v1.op_unit) AS b
--   WHERE a.table_count <> b.op_count
CREATE OR REPLACE VIEW v1.block_table AS
WITH sorted AS (
    SELECT
        u.rank,
        u.step_id,
        u.op_id,
        u.unit,
        u.phase,
        o.start_ns,
        o.end_ns,
        CASE
            WHEN u.node_kind NOT IN ('FWD', 'BWD', 'OPT') THEN u.node_kind
            WHEN o.time_class IN ('compute', 'graph') THEN 'compute'
            ELSE 'other'
        END AS kind
    FROM v1.op_unit AS u
    INNER JOIN v1.device_op AS o ON u.rank = o.rank AND u.op_id = o.op_id
),

member AS (
    SELECT
        *,
        max(end_ns) OVER (
            PARTITION BY rank, step_id, unit, phase, kind
            ORDER BY start_ns, op_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS busy_until_ns
    FROM sorted
),

added AS (
    SELECT
        *,
        greatest(0, end_ns - greatest(start_ns, coalesce(busy_until_ns, start_ns))) AS added_ns
    FROM member
)

SELECT
    rank,
    step_id,
    unit,
    phase,
    count(*) AS op_count,
    count(*) FILTER (WHERE kind = 'AGIN') AS agin_count,
    count(*) FILTER (WHERE kind = 'AG') AS ag_count,
    count(*) FILTER (WHERE kind = 'AGOUT') AS agout_count,
    count(*) FILTER (WHERE kind = 'compute') AS compute_count,
    count(*) FILTER (WHERE kind = 'RSIN') AS rsin_count,
    count(*) FILTER (WHERE kind = 'RS') AS rs_count,
    count(*) FILTER (WHERE kind = 'AR') AS ar_count,
    count(*) FILTER (WHERE kind = 'POST') AS post_count,
    coalesce(sum(added_ns) FILTER (WHERE kind = 'AGIN'), 0)::BIGINT AS agin_ns,
    coalesce(sum(added_ns) FILTER (WHERE kind = 'AG'), 0)::BIGINT AS ag_ns,
    coalesce(sum(added_ns) FILTER (WHERE kind = 'AGOUT'), 0)::BIGINT AS agout_ns,
    coalesce(sum(added_ns) FILTER (WHERE kind = 'compute'), 0)::BIGINT AS compute_ns,
    coalesce(sum(added_ns) FILTER (WHERE kind = 'RSIN'), 0)::BIGINT AS rsin_ns,
    coalesce(sum(added_ns) FILTER (WHERE kind = 'RS'), 0)::BIGINT AS rs_ns,
    coalesce(sum(added_ns) FILTER (WHERE kind = 'AR'), 0)::BIGINT AS ar_ns,
    coalesce(sum(added_ns) FILTER (WHERE kind = 'POST'), 0)::BIGINT AS post_ns,
    min(start_ns) FILTER (WHERE kind = 'compute') AS compute_start_ns,
    max(end_ns) FILTER (WHERE kind = 'compute') AS compute_end_ns
FROM added
GROUP BY rank, step_id, unit, phase;
