-- view:       v1.clock_base
-- purpose:    What the captures themselves say about the clocks of the ranks: an exchange between them, or the Unix time of each.
-- grain:      rank
-- depends-on: v1.rank, v1.clock_anchor
-- materialise: no
-- since:      1
-- columns:
--   rank              BIGINT   -   Global rank.
--   base_ns           BIGINT   ns  Added to this rank's times; NULL where nothing is said.
--   drift_ppb         DOUBLE   ppb How base_ns grows; NULL: not measured.
--   origin_ns         BIGINT   ns  Time of this rank at which base_ns holds; NULL without a drift.
--   uncertainty_ns    BIGINT   ns  What the exchange leaves open; NULL without one.
--   method            VARCHAR  -   clock exchange or capture clock; NULL where not all ranks are said something about.
--   is_of_several_hosts BOOLEAN  -   Unix times of several hosts: near each other, but no clock that the ranks share.
CREATE OR REPLACE VIEW v1.clock_base AS
-- An exchange, at the start and at the end: the offset in between, and how it grew.
WITH exchange AS (
    SELECT
        rank,
        (min(value_ns - ts_ns) + max(value_ns - ts_ns)) // 2 AS offset_ns,
        max(uncertainty_ns) AS uncertainty_ns,
        min(ts_ns) + (max(ts_ns) - min(ts_ns)) // 2 AS origin_ns,
        CASE
            WHEN max(ts_ns) > min(ts_ns)
                THEN
                    1e9 * (arg_max(value_ns - ts_ns, ts_ns) - arg_min(value_ns - ts_ns, ts_ns))
                    / (max(ts_ns) - min(ts_ns))
        END AS drift_ppb
    FROM v1.clock_anchor
    WHERE kind = 'rank0'
    GROUP BY rank
),

stated AS (
    SELECT
        r.rank,
        r.hostname,
        r.clock_base_ns,
        e.offset_ns AS exchange_ns,
        e.uncertainty_ns,
        e.drift_ppb,
        e.origin_ns,
        count(e.offset_ns) OVER () = count(*) OVER () AND count(*) OVER () > 1 AS is_exchanged,
        count(r.clock_base_ns) OVER () = count(*) OVER () AS is_unix
    FROM v1.rank AS r
    LEFT JOIN exchange AS e ON r.rank = e.rank
)

SELECT
    rank,
    CASE WHEN is_exchanged THEN exchange_ns ELSE clock_base_ns - min(clock_base_ns) OVER () END AS base_ns,
    CASE WHEN is_exchanged THEN drift_ppb END AS drift_ppb,
    CASE WHEN is_exchanged AND drift_ppb IS NOT NULL THEN origin_ns END AS origin_ns,
    CASE WHEN is_exchanged THEN uncertainty_ns END AS uncertainty_ns,
    CASE WHEN is_exchanged THEN 'clock exchange' WHEN is_unix THEN 'capture clock' END AS method,
    NOT is_exchanged
    AND coalesce(min(hostname) OVER () <> max(hostname) OVER (), FALSE) AS is_of_several_hosts
FROM stated;
