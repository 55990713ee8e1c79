-- view:       v1.window_skew
-- purpose:    Steps that are longer than those of the other ranks of the part: because they begin earlier, or because they end later.
-- grain:      rank, step_id
-- depends-on: v1.step, v1.step_number, v1.rank_part, v1.rank_clock, v1.step_clock
-- materialise: no
-- since:      1
-- columns:
--   rank          BIGINT  -  Global rank.
--   step_id       BIGINT  -  Step that counts, of a part of two captured ranks or more.
--   start_lead_ns BIGINT  ns How much earlier than the median rank (the later of two) its device window begins; NULL while clocks are unknown.
--   end_lag_ns    BIGINT  ns How much later than the median rank (the earlier of two) it ends.
--   longer_ns     BIGINT  ns How much longer than the median one (the shorter of two) it is.
--   limit_ns      BIGINT  ns Below this nothing is said: three clock residuals, and 2 % of the median step.
--   skew          VARCHAR -  start skew (begins earlier, ends with its peers: no straggler), late end, both, or none; NULL while clocks are unknown.
CREATE OR REPLACE VIEW v1.window_skew AS
WITH aligned AS (
    SELECT
        s.rank,
        s.step_id,
        n.step_number,
        p.part,
        s.device_start_ns + o.offset_ns AS start_ns,
        s.device_end_ns + o.offset_ns AS end_ns,
        s.device_end_ns - s.device_start_ns AS length_ns,
        c.residual_ns
    FROM v1.step AS s
    INNER JOIN v1.step_number AS n ON s.rank = n.rank AND s.step_id = n.step_id
    INNER JOIN v1.rank_part AS p ON s.rank = p.rank
    INNER JOIN v1.rank_clock AS c ON s.rank = c.rank
    INNER JOIN v1.step_clock AS o ON s.rank = o.rank AND s.step_id = o.step_id
    WHERE NOT s.is_boundary AND s.device_end_ns > s.device_start_ns
),

usual AS (
    SELECT
        part,
        step_number,
        -quantile_disc(-start_ns, 0.5) AS start_ns,
        quantile_disc(end_ns, 0.5) AS end_ns,
        quantile_disc(length_ns, 0.5) AS length_ns,
        count(start_ns) = count(*) AND count(residual_ns) = count(*) AS is_resolved
    FROM aligned
    GROUP BY part, step_number
    HAVING count(*) > 1
),

compared AS (
    SELECT
        a.rank,
        a.step_id,
        CASE WHEN u.is_resolved THEN u.start_ns - a.start_ns END AS start_lead_ns,
        CASE WHEN u.is_resolved THEN a.end_ns - u.end_ns END AS end_lag_ns,
        a.length_ns - u.length_ns AS longer_ns,
        CASE WHEN u.is_resolved THEN greatest(3 * a.residual_ns, u.length_ns // 50) END AS limit_ns
    FROM aligned AS a
    INNER JOIN usual AS u ON a.part = u.part AND a.step_number = u.step_number
)

SELECT
    rank,
    step_id,
    start_lead_ns,
    end_lag_ns,
    longer_ns,
    limit_ns,
    CASE
        WHEN limit_ns IS NULL THEN NULL
        WHEN longer_ns <= limit_ns THEN 'none'
        WHEN end_lag_ns <= limit_ns THEN 'start skew'
        WHEN start_lead_ns <= limit_ns THEN 'late end'
        ELSE 'both'
    END AS skew
FROM compared;
