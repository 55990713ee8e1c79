-- view:       v1.sample_interval
-- purpose:    Stretches of time between two neighbouring samples of hardware metrics, with how much of each the device was busy.
-- grain:      rank, interval_id
-- depends-on: v1.device_sample, v1.device_op
-- materialise: run
-- since:      1
-- columns:
--   rank        BIGINT  -  Global rank.
--   interval_id BIGINT  -  Number in time order, from 0; a hole in the sampling has none.
--   start_ns    BIGINT  ns Time of one sample.
--   end_ns      BIGINT  ns Time of the next.
--   busy_ns     BIGINT  ns Union of the rank's device ops in it.
-- audit interval_holds_its_busy_time:
--   SELECT i.rank, i.interval_id FROM v1.sample_interval AS i WHERE i.busy_ns < 0 OR i.busy_ns > i.end_ns - i.start_ns
CREATE OR REPLACE VIEW v1.sample_interval AS
-- Another capture may sample longer than this rank was recorded: what ran outside is not known.
WITH extent AS (
    SELECT
        o.rank,
        min(o.start_ns) AS start_ns,
        max(o.end_ns) AS end_ns
    FROM v1.device_op AS o
    WHERE
        o.rank IN (
            SELECT s.rank
            FROM v1.device_sample AS s
            WHERE s.rank <> s.source_rank
        )
    GROUP BY o.rank
),

tick AS (
    SELECT DISTINCT
        s.rank,
        s.ts_ns
    FROM v1.device_sample AS s
    LEFT JOIN extent AS e ON s.rank = e.rank
    WHERE s.rank = s.source_rank OR (s.ts_ns >= e.start_ns AND s.ts_ns <= e.end_ns)
),

neighbour AS (
    SELECT
        rank,
        ts_ns AS start_ns,
        lead(ts_ns) OVER (PARTITION BY rank ORDER BY ts_ns) AS end_ns
    FROM tick
),

-- Longer than one and a half usual periods: samples are missing there.
kept AS (
    SELECT *
    FROM neighbour
    WHERE end_ns IS NOT NULL
    QUALIFY end_ns - start_ns <= 1.5 * median(end_ns - start_ns) OVER (PARTITION BY rank)
),

edge AS (
    SELECT
        rank,
        start_ns AS at_ns
    FROM kept
    UNION
    SELECT
        rank,
        end_ns AS at_ns
    FROM kept
),

-- With M(t) the latest end of the ops started by t, their union up to t is (sum of what each op added) - (M(t) - t)+.
op AS (
    SELECT
        o.rank,
        o.op_id,
        o.start_ns,
        o.end_ns,
        max(o.end_ns) OVER (
            PARTITION BY o.rank ORDER BY o.start_ns, o.op_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS busy_until
    FROM v1.device_op AS o
    WHERE o.rank IN (SELECT t.rank FROM tick AS t)
),

busy AS (
    SELECT
        rank,
        start_ns,
        max(end_ns) OVER so_far AS busy_until,
        sum(greatest(0, end_ns - greatest(start_ns, coalesce(busy_until, start_ns)))) OVER so_far AS busy_ns
    FROM op
    WINDOW so_far AS (PARTITION BY rank ORDER BY start_ns, op_id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
),

-- Of ops that start together the last one holds them all.
by_start AS (
    SELECT
        rank,
        start_ns,
        max(busy_until) AS busy_until,
        max(busy_ns) AS busy_ns
    FROM busy
    GROUP BY rank, start_ns
),

at_edge AS MATERIALIZED (
    SELECT
        e.rank,
        e.at_ns,
        coalesce(b.busy_ns - greatest(b.busy_until - e.at_ns, 0), 0) AS busy_ns
    FROM edge AS e
    ASOF LEFT JOIN by_start AS b ON e.rank = b.rank AND e.at_ns >= b.start_ns
)

SELECT
    k.rank,
    (row_number() OVER (PARTITION BY k.rank ORDER BY k.start_ns) - 1)::BIGINT AS interval_id,
    k.start_ns,
    k.end_ns,
    (f.busy_ns - s.busy_ns)::BIGINT AS busy_ns
FROM kept AS k
INNER JOIN at_edge AS s ON k.rank = s.rank AND k.start_ns = s.at_ns
INNER JOIN at_edge AS f ON k.rank = f.rank AND k.end_ns = f.at_ns;
