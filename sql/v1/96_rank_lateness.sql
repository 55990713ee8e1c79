-- view:       v1.rank_lateness
-- purpose:    How late each rank came to the collectives of a step, what that cost the others, and how long it waited there itself.
-- grain:      rank, step_id
-- depends-on: v1.collective_instance, v1.rank_clock, v1.step_clock, v1.compute_gap, v1.step
-- materialise: run
-- since:      1
-- columns:
--   rank          BIGINT  -  Global rank.
--   step_id       BIGINT  -  Step in which it launched the collectives.
--   matched_count BIGINT  -  Collectives of the step that are matched on all their ranks, of two ranks or more.
--   last_count    BIGINT  -  Of these, where this rank came last, by more than three clock residuals after the rank before it.
--   late_ns       BIGINT  ns Union of the times from the last but one arrival, or the begin of its own step if that is later, to this rank's, where it came last by more than three residuals.
--   held_ns       BIGINT  ns Part of late_ns in which the last but one rank had stopped computing and did not before the collective ended: about what would be gained had this rank come with it.
--   unclear_ns    BIGINT  ns The same as held_ns where the lateness is within three residuals.
--   behind_ns     BIGINT  ns Union of the times from the median arrival (the earlier of two) to its own, last or not, where that is beyond three residuals.
--   wait_ns       BIGINT  ns Union of the times from its own arrival to the last one.
--   residual_ns   BIGINT  ns Largest clock residual of these comparisons; NULL where one is not known.
--   is_resolved   BOOLEAN -  The ranks' clocks can be compared; without, counts and times are NULL.
-- audit held_up_is_part_of_late:
--   SELECT l.rank, l.step_id FROM v1.rank_lateness AS l WHERE l.held_ns > l.late_ns
CREATE OR REPLACE VIEW v1.rank_lateness AS
WITH arrival AS (
    SELECT
        i.rank,
        i.step_id,
        i.group_name,
        i.group_ranks,
        i.seq,
        i.start_ns,
        i.end_ns,
        s.offset_ns,
        c.residual_ns
    FROM v1.collective_instance AS i
    INNER JOIN v1.rank_clock AS c ON i.rank = c.rank
    INNER JOIN v1.step_clock AS s ON i.rank = s.rank AND i.step_id = s.step_id
    WHERE i.is_matched AND i.participants > 1 AND i.step_id IS NOT NULL
),

-- The two that come last decide by how much, and how well that is known.
instance AS (
    SELECT
        group_name,
        group_ranks,
        seq,
        count(start_ns) = count(*) AND count(residual_ns) = count(*) AS is_resolved,
        quantile_disc(start_ns, 0.5) AS median_ns,
        arg_max(rank, start_ns) AS last_rank,
        max(start_ns, 2)[1] AS last_ns,
        max(start_ns, 2)[2] AS next_ns,
        arg_max(rank, start_ns, 2)[2] AS next_rank,
        arg_max(offset_ns, start_ns, 2)[2] AS next_offset_ns,
        arg_max(end_ns - offset_ns, start_ns, 2)[2] AS next_own_end_ns,
        list_max(arg_max(residual_ns, start_ns, 2)) AS last_residual_ns
    FROM arrival
    GROUP BY group_name, group_ranks, seq
),

-- Who computes again before the collective ends did not wait for it.
stopped AS (
    SELECT
        i.*,
        i.last_ns - i.next_ns > 3 * i.last_residual_ns AS is_clear,
        CASE
            WHEN g.end_ns >= i.next_own_end_ns THEN greatest(i.next_ns, g.start_ns + i.next_offset_ns)
        END AS held_from_ns
    FROM instance AS i
    ASOF LEFT JOIN v1.compute_gap AS g ON i.next_rank = g.rank AND i.next_own_end_ns >= g.start_ns
),

compared AS (
    SELECT
        a.rank,
        a.step_id,
        a.start_ns,
        i.is_resolved,
        i.median_ns,
        i.last_ns,
        -- Who begins its step earlier waits for the others' begin: that is start skew (v1.window_skew), and nobody's lateness.
        greatest(i.next_ns, s.device_start_ns + a.offset_ns) AS next_ns,
        CASE
            WHEN i.held_from_ns IS NOT NULL THEN greatest(i.held_from_ns, s.device_start_ns + a.offset_ns)
        END AS held_from_ns,
        greatest(a.residual_ns, i.last_residual_ns) AS residual_ns,
        i.is_clear,
        i.is_resolved AND a.rank = i.last_rank AND i.last_ns > i.next_ns AS is_last,
        a.start_ns - i.median_ns > 3 * a.residual_ns AS is_behind
    FROM arrival AS a
    INNER JOIN stopped AS i
        ON
            a.group_name = i.group_name
            AND a.group_ranks IS NOT DISTINCT FROM i.group_ranks
            AND a.seq = i.seq
    LEFT JOIN v1.step AS s ON a.rank = s.rank AND a.step_id = s.step_id
),

piece AS (
    SELECT
        c.rank,
        c.step_id,
        p.kind,
        p.start_ns,
        p.end_ns
    FROM compared AS c
    CROSS JOIN
        LATERAL (
            VALUES
            ('late', c.next_ns, c.last_ns, c.is_last AND c.is_clear),
            ('held', c.held_from_ns, c.last_ns, c.is_last AND c.is_clear),
            ('unclear', c.held_from_ns, c.last_ns, c.is_last AND NOT c.is_clear),
            ('behind', c.median_ns, c.start_ns, c.is_behind),
            ('wait', c.start_ns, c.last_ns, TRUE)
        ) AS p (kind, start_ns, end_ns, is_there)
    WHERE c.is_resolved AND p.is_there AND p.end_ns > p.start_ns
),

-- Several streams wait at once for one cause.
followed AS (
    SELECT
        *,
        max(end_ns) OVER (
            PARTITION BY rank, step_id, kind
            ORDER BY start_ns, end_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS covered_until_ns
    FROM piece
),

lengths AS (
    SELECT
        rank,
        step_id,
        kind,
        sum(greatest(0, end_ns - greatest(start_ns, coalesce(covered_until_ns, start_ns))))::BIGINT AS length_ns
    FROM followed
    GROUP BY rank, step_id, kind
),

united AS (
    SELECT
        rank,
        step_id,
        max(length_ns) FILTER (WHERE kind = 'late') AS late_ns,
        max(length_ns) FILTER (WHERE kind = 'held') AS held_ns,
        max(length_ns) FILTER (WHERE kind = 'unclear') AS unclear_ns,
        max(length_ns) FILTER (WHERE kind = 'behind') AS behind_ns,
        max(length_ns) FILTER (WHERE kind = 'wait') AS wait_ns
    FROM lengths
    GROUP BY rank, step_id
),

counted AS (
    SELECT
        rank,
        step_id,
        count(*) AS matched_count,
        count(*) FILTER (WHERE is_last AND is_clear) AS last_count,
        max(residual_ns) AS residual_ns,
        bool_and(is_resolved) AS is_resolved
    FROM compared
    GROUP BY rank, step_id
)

SELECT
    c.rank,
    c.step_id,
    c.matched_count,
    CASE WHEN c.is_resolved THEN c.last_count END AS last_count,
    CASE WHEN c.is_resolved THEN coalesce(u.late_ns, 0) END AS late_ns,
    CASE WHEN c.is_resolved THEN coalesce(u.held_ns, 0) END AS held_ns,
    CASE WHEN c.is_resolved THEN coalesce(u.unclear_ns, 0) END AS unclear_ns,
    CASE WHEN c.is_resolved THEN coalesce(u.behind_ns, 0) END AS behind_ns,
    CASE WHEN c.is_resolved THEN coalesce(u.wait_ns, 0) END AS wait_ns,
    CASE WHEN c.is_resolved THEN c.residual_ns END AS residual_ns,
    c.is_resolved
FROM counted AS c
LEFT JOIN united AS u ON c.rank = u.rank AND c.step_id = u.step_id;
