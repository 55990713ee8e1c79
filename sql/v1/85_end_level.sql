-- view:       v1.end_level
-- purpose:    Where each rank's clock stands against the others' by the ends of matched collectives: over the capture, and step by step.
-- grain:      rank, step_id
-- depends-on: v1.collective_match, v1.clock_base
-- materialise: run
-- since:      1
-- columns:
--   rank        BIGINT  -   Global rank.
--   step_id     BIGINT  -   Step; NULL: the whole capture.
--   match_count BIGINT  -   Matched collectives behind it.
--   level_ns    BIGINT  ns  What its ends come after the median end of the ranks of a collective, after v1.clock_base: the median in the largest group; ranks outside of it stand where the groups that they share with others put them.
--   apart_ns    BIGINT  ns  Median of what they come after the mean end on the other ranks, in the group where that is most.
--   spread_ns   BIGINT  ns  From the 5th to the 95th percentile of what they come after the median end, less what is usual in the group; of the capture the median of its steps.
--   at_ns       BIGINT  ns  Middle between its first and its last end, on the rank's own clock.
--   jump_ns     BIGINT  ns  Largest jump of the clock that touches the step: three ends in a row and the three before are apart by more than half a millisecond and spread_ns; NULL without one.
CREATE OR REPLACE VIEW v1.end_level AS
WITH RECURSIVE finished AS (
    SELECT
        m.rank,
        m.step_id,
        m.group_name,
        m.group_ranks,
        m.seq,
        m.end_ns,
        m.end_ns + coalesce(b.base_ns, 0)
        + coalesce(round((m.end_ns - b.origin_ns) * b.drift_ppb / 1e9)::BIGINT, 0) AS based_ns
    FROM v1.collective_match AS m
    INNER JOIN v1.clock_base AS b ON m.rank = b.rank
    WHERE m.is_matched AND m.participants > 1
),

-- Means of Unix times would not be exact.
ended AS (
    SELECT
        *,
        dense_rank() OVER (ORDER BY group_name, group_ranks) AS group_id,
        based_ns - min(based_ns) OVER (PARTITION BY group_name, group_ranks, seq) AS late_ns
    FROM finished
),

-- A collective ends on all its ranks at nearly one time: what is left is the error of the clocks and the end's own jitter.
apart AS MATERIALIZED (
    SELECT
        rank,
        step_id,
        end_ns,
        group_id,
        seq,
        late_ns - median(late_ns) OVER instance AS from_median_ns,
        late_ns - (sum(late_ns) OVER instance - late_ns) / (count(*) OVER instance - 1) AS apart_ns,
        -- Of two ranks the median end moves by half of what one of them does.
        CASE WHEN count(*) OVER instance = 2 THEN 2 ELSE 1 END * (late_ns - median(late_ns) OVER instance) AS moved_ns
    FROM ended
    WINDOW instance AS (PARTITION BY group_id, seq)
),

-- Place -1 is the whole capture.
in_place AS (
    SELECT
        *,
        (-1)::BIGINT AS place
    FROM apart
    UNION ALL
    SELECT
        *,
        step_id AS place
    FROM apart
    WHERE step_id IS NOT NULL
),

in_group AS MATERIALIZED (
    SELECT
        place,
        group_id,
        rank,
        count(*) AS match_count,
        median(from_median_ns) AS level_ns,
        median(apart_ns) AS apart_ns
    FROM in_place
    GROUP BY place, group_id, rank
),

largest AS (
    SELECT
        place,
        group_id,
        row_number() OVER (
            PARTITION BY place
            ORDER BY min(match_count) >= 5 DESC, count(*) DESC, min(match_count) DESC, group_id
        ) AS number
    FROM in_group
    GROUP BY place, group_id
),

-- Each round puts the groups of ranks that have a place onto their time, and the other ranks of these with them.
placed AS (
    SELECT
        g.place,
        g.rank,
        g.level_ns
    FROM in_group AS g
    INNER JOIN largest AS l ON g.place = l.place AND g.group_id = l.group_id
    WHERE l.number = 1
    UNION ALL
    (
        WITH shifted AS (
            SELECT
                g.place,
                g.group_id,
                median(p.level_ns - g.level_ns) AS shift_ns
            FROM placed AS p
            INNER JOIN in_group AS g ON p.place = g.place AND p.rank = g.rank
            GROUP BY g.place, g.group_id
        ),

        reached AS (
            SELECT
                g.place,
                g.rank,
                arg_max(g.level_ns + s.shift_ns, g.match_count) AS level_ns
            FROM in_group AS g
            INNER JOIN shifted AS s ON g.place = s.place AND g.group_id = s.group_id
            LEFT JOIN placed AS p ON g.place = p.place AND g.rank = p.rank
            WHERE p.rank IS NULL
            GROUP BY g.place, g.rank
        )

        SELECT
            place,
            rank,
            level_ns
        FROM reached
        UNION ALL
        SELECT
            p.place,
            p.rank,
            p.level_ns
        FROM placed AS p
        WHERE p.place IN (SELECT r.place FROM reached AS r)
    )
),

level AS (
    SELECT DISTINCT
        place,
        rank,
        level_ns
    FROM placed
),

summary AS (
    SELECT
        i.place,
        i.rank,
        count(*) AS match_count,
        median(i.from_median_ns) AS level_ns,
        quantile_cont(i.from_median_ns - g.level_ns, 0.95) - quantile_cont(i.from_median_ns - g.level_ns, 0.05)
            AS spread_ns,
        min(i.end_ns) + (max(i.end_ns) - min(i.end_ns)) // 2 AS at_ns
    FROM in_place AS i
    INNER JOIN in_group AS g ON i.place = g.place AND i.group_id = g.group_id AND i.rank = g.rank
    GROUP BY i.place, i.rank
),

most_apart AS (
    SELECT
        place,
        rank,
        arg_max(apart_ns, abs(apart_ns)) AS apart_ns
    FROM in_group
    GROUP BY place, rank
),

usual AS (
    SELECT
        rank,
        coalesce(median(spread_ns) FILTER (WHERE place >= 0), any_value(spread_ns)) AS spread_ns
    FROM summary
    GROUP BY rank
),

-- Three in a row, since one or two ends are late for other reasons; by number, for a clock may jump back.
beside AS (
    SELECT
        rank,
        step_id,
        lag(step_id) OVER in_order AS step_before,
        CASE
            WHEN count(*) OVER before = 3 AND count(*) OVER after = 3
                THEN greatest(
                    min(moved_ns) OVER after - max(moved_ns) OVER before,
                    min(moved_ns) OVER before - max(moved_ns) OVER after
                )
        END AS apart_ns
    FROM apart
    WINDOW
        in_order AS (PARTITION BY rank, group_id ORDER BY seq),
        before AS (PARTITION BY rank, group_id ORDER BY seq ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING),
        after AS (PARTITION BY rank, group_id ORDER BY seq ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING)
),

-- Between two steps it may lie in either.
touched AS (
    SELECT
        b.rank,
        unnest(list_distinct([-1, b.step_id, b.step_before])) AS place,
        b.apart_ns
    FROM beside AS b
    INNER JOIN usual AS u ON b.rank = u.rank
    WHERE b.apart_ns > greatest(5e5, u.spread_ns)
),

jump AS (
    SELECT
        rank,
        place,
        max(apart_ns) AS jump_ns
    FROM touched
    GROUP BY rank, place
)

SELECT
    s.rank,
    nullif(s.place, -1) AS step_id,
    s.match_count,
    coalesce(l.level_ns, s.level_ns)::BIGINT AS level_ns,
    a.apart_ns::BIGINT AS apart_ns,
    CASE WHEN s.place = -1 THEN u.spread_ns ELSE s.spread_ns END::BIGINT AS spread_ns,
    s.at_ns,
    j.jump_ns::BIGINT AS jump_ns
FROM summary AS s
INNER JOIN most_apart AS a ON s.place = a.place AND s.rank = a.rank
INNER JOIN usual AS u ON s.rank = u.rank
LEFT JOIN level AS l ON s.place = l.place AND s.rank = l.rank
LEFT JOIN jump AS j ON s.place = j.place AND s.rank = j.rank;
