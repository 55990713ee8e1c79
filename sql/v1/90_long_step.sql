-- view:       v1.long_step
-- purpose:    Steps that the median one does not stand for: those of the longer of two kinds, or far longer than it.
-- grain:      step_id
-- depends-on: v1.step_gap
-- materialise: no
-- since:      1
-- columns:
--   step_id  BIGINT  -  Step, by its length on the rank that stands for the run.
--   is_shown BOOLEAN -  The lower median of them by length, to show for all.
CREATE OR REPLACE VIEW v1.long_step AS
WITH ordered AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY rank ORDER BY observed_ns, step_id)
        = (count(*) OVER (PARTITION BY rank) + 1) // 2 AS is_median
    FROM v1.step_gap
    WHERE NOT is_boundary
),

-- The rank that stands for the run.
run AS (
    SELECT
        rank,
        observed_ns,
        gap_ns
    FROM ordered
    WHERE is_median
    ORDER BY observed_ns DESC, rank ASC
    LIMIT 1
),

-- Steps of two kinds, two of each at least: ordered by length, or by what could be got back of each, they leave a
-- space of over 5 % of the median step. Which kind is the more frequent one does not matter.
spaced AS (
    SELECT
        m.measure,
        m.amount_ns AS least_long_ns,
        m.amount_ns - lag(m.amount_ns) OVER by_amount AS space_ns,
        row_number() OVER by_amount - 1 AS other_count,
        count(*) OVER (PARTITION BY m.measure) AS step_count
    FROM ordered AS o
    INNER JOIN run AS r ON o.rank = r.rank
    CROSS JOIN LATERAL (VALUES ('observed', o.observed_ns), ('gap', o.gap_ns)) AS m (measure, amount_ns)
    WINDOW by_amount AS (PARTITION BY m.measure ORDER BY m.amount_ns)
),

kinds AS (
    SELECT
        s.measure,
        s.least_long_ns
    FROM spaced AS s
    CROSS JOIN run AS r
    WHERE s.space_ns > 0.05 * r.observed_ns AND s.other_count >= 2 AND s.step_count - s.other_count >= 2
    ORDER BY s.space_ns DESC, s.measure ASC
    LIMIT 1
),

-- Or the median hides what makes some steps long: by a tenth, or in the mean of the gap.
uneven AS (
    SELECT
        max(o.observed_ns) > 1.1 * any_value(r.observed_ns)
        OR avg(o.gap_ns) - any_value(r.gap_ns) > 0.05 * any_value(r.observed_ns) AS is_uneven
    FROM ordered AS o
    INNER JOIN run AS r ON o.rank = r.rank
)

SELECT
    o.step_id,
    row_number() OVER (ORDER BY o.observed_ns, o.step_id) = (count(*) OVER () + 1) // 2 AS is_shown
FROM ordered AS o
INNER JOIN run AS r ON o.rank = r.rank
CROSS JOIN uneven AS u
LEFT JOIN kinds AS k ON TRUE
WHERE
    CASE
        WHEN k.measure IS NULL THEN u.is_uneven AND o.observed_ns > 1.05 * r.observed_ns
        ELSE if(k.measure = 'gap', o.gap_ns, o.observed_ns) >= k.least_long_ns
    END;
