-- view:       v1.step_gpu_clock
-- purpose:    Clock of the device while each step computed, where it was sampled: compute takes longer at a lower one.
-- grain:      rank, step_id
-- depends-on: v1.sample_interval, v1.metric_alignment, v1.device_sample, v1.name, v1.device_op, v1.step_window, v1.step_budget
-- materialise: run
-- since:      1
-- columns:
--   rank           BIGINT  -  Global rank.
--   step_id        BIGINT  -  Step; one without a sample while it computed has no row.
--   sample_count   BIGINT  -  Samples in the middle of which compute ran, inside the step's device window.
--   covered_share  DOUBLE  1  Time of these samples / compute_ns: near 1 where samples cover the step, short of it where they have holes.
--   mean_hz        DOUBLE  Hz Their mean clock.
--   min_hz         DOUBLE  Hz Lowest.
--   max_hz         DOUBLE  Hz Highest.
--   compute_ns     BIGINT  ns Union of compute in the device window, as in v1.step_budget.
--   compute_cycles DOUBLE  -  compute_ns at mean_hz: steps of the same work that differ in time and not in this differ by their clock.
CREATE OR REPLACE VIEW v1.step_gpu_clock AS
-- Of samples in which compute runs: while the device waits or only communicates its clock rises, and that shortens no compute.
WITH clock AS (
    SELECT
        i.rank,
        i.end_ns - i.start_ns AS length_ns,
        i.start_ns + (i.end_ns - i.start_ns) // 2 AS middle_ns,
        -- Nsight Systems names the metric in MHz and gives Hz; no device runs at 100 GHz or at 100 kHz.
        CASE WHEN m.value < 1e5 THEN 1e6 ELSE 1 END * m.value AS hz
    FROM v1.sample_interval AS i
    INNER JOIN v1.metric_alignment AS a ON i.rank = a.rank AND a.status = 'ok'
    INNER JOIN v1.device_sample AS m
        ON i.rank = m.rank AND m.ts_ns = CASE WHEN a.is_begin_stamped THEN i.start_ns ELSE i.end_ns END
    INNER JOIN v1.name AS n ON m.source_rank = n.rank AND m.name_id = n.name_id
    WHERE regexp_matches(n.name, '^GPC Clock Frequency\b')
),

-- Compute runs at t if the latest end of the ops started by t is behind t.
compute AS (
    SELECT
        o.rank,
        o.start_ns,
        max(o.end_ns) OVER (PARTITION BY o.rank ORDER BY o.start_ns) AS busy_until
    FROM v1.device_op AS o
    WHERE o.time_class IN ('compute', 'graph') AND o.rank IN (SELECT c.rank FROM clock AS c)
),

computing AS (
    SELECT c.*
    FROM clock AS c
    ASOF INNER JOIN (SELECT DISTINCT * FROM compute) AS o ON c.rank = o.rank AND c.middle_ns >= o.start_ns
    WHERE c.middle_ns < o.busy_until
),

device_window AS (
    SELECT
        rank,
        step_id,
        start_ns,
        end_ns
    FROM v1.step_window
    WHERE projection = 'device'
),

sampled AS (
    SELECT
        c.rank,
        w.step_id,
        count(*) AS sample_count,
        sum(c.length_ns) AS length_ns,
        avg(c.hz) AS mean_hz,
        min(c.hz) AS min_hz,
        max(c.hz) AS max_hz
    FROM computing AS c
    ASOF INNER JOIN device_window AS w ON c.rank = w.rank AND c.middle_ns >= w.start_ns
    WHERE c.middle_ns < w.end_ns
    GROUP BY c.rank, w.step_id
)

SELECT
    s.rank,
    s.step_id,
    s.sample_count,
    s.length_ns / b.compute_ns AS covered_share,
    s.mean_hz,
    s.min_hz,
    s.max_hz,
    b.compute_ns,
    b.compute_ns * s.mean_hz / 1e9 AS compute_cycles
FROM sampled AS s
INNER JOIN v1.step_budget AS b ON s.rank = b.rank AND s.step_id = b.step_id AND b.projection = 'device';
