-- view:       v1.rank_clock
-- purpose:    What to add to a rank's times to compare ranks, and how far that can be trusted.
-- grain:      rank
-- depends-on: v1.rank, v1.collective_match, v1.clock_anchor
-- materialise: run
-- since:      1
-- columns:
--   rank            BIGINT   -   Global rank.
--   offset_ns       BIGINT   ns  Added to this rank's times; NULL while unknown.
--   drift_ppb       BIGINT   ppb Drift against the first rank; NULL: not measured.
--   residual_p5_ns  BIGINT   ns  Matched collective ends less the mean end on the other ranks, 5th percentile; NULL without a match.
--   residual_p95_ns BIGINT   ns  95th percentile.
--   residual_ns     BIGINT   ns  Below this, a difference between ranks is not resolved: the larger of the two, and what the exchange leaves open.
--   match_count     BIGINT   -   Matched collectives behind the residual.
--   method          VARCHAR  -   one rank, clock exchange (between the ranks), capture clock (each source states Unix time), or matched ends (centred on them); NULL while the offset is unknown.
CREATE OR REPLACE VIEW v1.rank_clock AS
-- An exchange, at the start and at the end: the offset in between, and how it grew.
WITH exchange AS (
    SELECT
        rank,
        (min(value_ns - ts_ns) + max(value_ns - ts_ns)) // 2 AS offset_ns,
        max(uncertainty_ns) AS uncertainty_ns,
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
        count(*) OVER () AS ranks,
        count(e.offset_ns) OVER () = count(*) OVER () AND count(*) OVER () > 1 AS is_exchanged
    FROM v1.rank AS r
    LEFT JOIN exchange AS e ON r.rank = e.rank
),

based AS (
    SELECT
        rank,
        ranks,
        is_exchanged,
        CASE WHEN is_exchanged THEN uncertainty_ns END AS uncertainty_ns,
        CASE WHEN is_exchanged THEN drift_ppb END AS drift_ppb,
        CASE WHEN is_exchanged THEN exchange_ns ELSE clock_base_ns - min(clock_base_ns) OVER () END AS base_offset_ns,
        CASE WHEN is_exchanged THEN ranks ELSE count(clock_base_ns) OVER () END AS based_ranks,
        NOT is_exchanged
        AND coalesce(min(hostname) OVER () <> max(hostname) OVER (), FALSE) AS has_several_hosts
    FROM stated
),

finished AS (
    SELECT
        m.rank,
        m.end_ns + coalesce(b.base_offset_ns, 0) AS end_ns,
        m.group_name,
        m.group_ranks,
        m.seq
    FROM v1.collective_match AS m
    INNER JOIN based AS b ON m.rank = b.rank
    WHERE m.is_matched AND m.participants > 1
),

-- Means of Unix times would not be exact.
ended AS (
    SELECT
        rank,
        group_name,
        group_ranks,
        seq,
        end_ns - min(end_ns) OVER (PARTITION BY group_name, group_ranks, seq) AS late_ns
    FROM finished
),

-- A collective ends on all its ranks at nearly one time: what is left is the error of the clocks and the end's own jitter.
apart AS (
    SELECT
        rank,
        late_ns - avg(late_ns) OVER instance AS from_mean_ns,
        late_ns - (sum(late_ns) OVER instance - late_ns) / (count(*) OVER instance - 1) AS apart_ns
    FROM ended
    WINDOW instance AS (PARTITION BY group_name, group_ranks, seq)
),

spread AS (
    SELECT
        rank,
        count(*) AS match_count,
        median(from_mean_ns) AS centre_ns,
        median(apart_ns) AS median_ns,
        quantile_cont(apart_ns, 0.05) AS p5_ns,
        quantile_cont(apart_ns, 0.95) AS p95_ns
    FROM apart
    GROUP BY rank
),

-- One host has one clock: there the captures' own times stand unless they cannot be right.
judged AS (
    SELECT
        b.*,
        s.match_count,
        s.centre_ns,
        s.median_ns,
        s.p5_ns,
        s.p95_ns,
        b.ranks > 1 AND s.match_count >= 5 AND (
            b.has_several_hosts
            OR b.based_ranks < b.ranks
            OR (abs(s.median_ns) > 5e5 AND abs(s.median_ns) > 5 * (s.p95_ns - s.p5_ns))
        ) AS needs_ends
    FROM based AS b
    LEFT JOIN spread AS s ON b.rank = s.rank
),

-- If one rank has to be centred all are, or they would no longer share a centre.
decided AS (
    SELECT
        *,
        coalesce(bool_or(needs_ends) OVER (), FALSE) AS is_centred
    FROM judged
)

SELECT
    rank,
    CASE
        WHEN ranks = 1 THEN 0
        WHEN is_centred THEN coalesce(base_offset_ns, 0) - centre_ns
        WHEN based_ranks = ranks THEN base_offset_ns
    END::BIGINT AS offset_ns,
    round(CASE WHEN NOT is_centred THEN drift_ppb END)::BIGINT AS drift_ppb,
    (p5_ns - CASE WHEN is_centred THEN median_ns ELSE 0 END)::BIGINT AS residual_p5_ns,
    (p95_ns - CASE WHEN is_centred THEN median_ns ELSE 0 END)::BIGINT AS residual_p95_ns,
    greatest(
        abs(p5_ns - CASE WHEN is_centred THEN median_ns ELSE 0 END),
        abs(p95_ns - CASE WHEN is_centred THEN median_ns ELSE 0 END),
        CASE WHEN NOT is_centred THEN uncertainty_ns END
    )::BIGINT AS residual_ns,
    coalesce(match_count, 0) AS match_count,
    CASE
        WHEN ranks = 1 THEN 'one rank'
        WHEN is_centred THEN CASE WHEN match_count > 0 THEN 'matched ends' END
        WHEN is_exchanged THEN 'clock exchange'
        WHEN based_ranks = ranks THEN 'capture clock'
    END AS method
FROM decided;
