-- view:       v1.launch_pacing
-- purpose:    How far each launching thread ran ahead of the device, per step and per unit where known.
-- grain:      rank, step_id, launch_tid, unit
-- depends-on: v1.op, v1.step_window
-- materialise: rank
-- since:      1
-- columns:
--   rank             BIGINT   -  Global rank.
--   step_id          BIGINT   -  Step (host projection) in which the launch happened; NULL outside steps.
--   launch_tid       BIGINT   -  Launching thread.
--   unit             VARCHAR  -  Module named in the annotation at the launch; NULL row: the whole step.
--   launch_count     BIGINT   -  Launching calls.
--   op_count         BIGINT   -  Device ops launched.
--   launching_ns     BIGINT   ns First launch entry to last launch return.
--   launches_per_ms  DOUBLE   1/ms Launching calls per millisecond of that time.
--   run_ahead_p05_ns BIGINT   ns Start on the device minus return of the launch, 5th percentile.
--   run_ahead_median_ns BIGINT ns Median.
--   run_ahead_p95_ns BIGINT   ns 95th percentile.
--   late_count       BIGINT   -  Ops with a run-ahead below 20 us: the device had nothing queued before them.
CREATE OR REPLACE VIEW v1.launch_pacing AS
WITH host_window AS (
    SELECT *
    FROM v1.step_window
    WHERE projection = 'host'
),

launched AS (
    SELECT
        o.rank,
        CASE WHEN o.launch_start_ns < w.end_ns THEN w.step_id END AS step_id,
        o.launch_tid,
        nullif(regexp_extract(o.annotation, '^FSDP::[a-z_]+ (?:\(|for )([^)]*)\)?', 1), '') AS unit,
        o.launch_call_id,
        o.launch_start_ns,
        o.launch_end_ns,
        o.start_ns - o.issued_ns AS run_ahead_ns
    FROM v1.op AS o
    ASOF LEFT JOIN host_window AS w
        ON o.rank = w.rank AND o.launch_start_ns >= w.start_ns
    WHERE o.launch_call_id IS NOT NULL
),

grouped AS (
    SELECT
        *,
        FALSE AS is_unit
    FROM launched
    UNION ALL
    SELECT
        *,
        TRUE AS is_unit
    FROM launched
    WHERE unit IS NOT NULL
)

SELECT
    rank,
    step_id,
    launch_tid,
    CASE WHEN is_unit THEN unit END AS unit,
    count(DISTINCT launch_call_id) AS launch_count,
    count(*) AS op_count,
    max(launch_end_ns) - min(launch_start_ns) AS launching_ns,
    count(DISTINCT launch_call_id) * 1e6
    / nullif(max(launch_end_ns) - min(launch_start_ns), 0) AS launches_per_ms,
    quantile_cont(run_ahead_ns, 0.05)::BIGINT AS run_ahead_p05_ns,
    quantile_cont(run_ahead_ns, 0.5)::BIGINT AS run_ahead_median_ns,
    quantile_cont(run_ahead_ns, 0.95)::BIGINT AS run_ahead_p95_ns,
    count(*) FILTER (WHERE run_ahead_ns < 20000) AS late_count
FROM grouped
GROUP BY rank, step_id, launch_tid, is_unit, CASE WHEN is_unit THEN unit END;
