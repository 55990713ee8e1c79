-- view:       v1.anchor_check
-- purpose:    Every anchor that the capture offers for its steps: how long and how even they are, and whether they are those of the anchor in use.
-- grain:      rank, source
-- depends-on: v1.anchor_window
-- materialise: rank
-- since:      1
-- columns:
--   rank          BIGINT  -  Global rank.
--   source        VARCHAR -  Anchor, as in v1.step_range.
--   priority      INTEGER -  The lowest priority present is the run's step anchor.
--   is_used       BOOLEAN -  Steps are taken from it.
--   label         VARCHAR -  Text of its first range, or what recurred.
--   step_count    BIGINT  -  Steps.
--   median_ns     BIGINT  ns Median device window, the first left out; lower of two. NULL with one step.
--   min_ns        BIGINT  ns Shortest of these.
--   max_ns        BIGINT  ns Longest.
--   op_count_min  BIGINT  -  Fewest device ops launched in one of these steps.
--   op_count_max  BIGINT  -  Most.
--   pair_count    BIGINT  -  Windows of the anchor in use that were compared with one of this.
--   apart_count   BIGINT  -  Of these, more than 2 % apart in length.
--   verdict       VARCHAR -  used; agrees; disagrees; not compared: too few windows.
CREATE OR REPLACE VIEW v1.anchor_check AS
-- The first window starts at the range's own start, which anchors are free to put elsewhere.
WITH compared AS (
    SELECT
        rank,
        source,
        start_ns,
        end_ns,
        end_ns - start_ns AS length_ns,
        start_ns + (end_ns - start_ns) // 2 AS middle_ns,
        op_count
    FROM v1.anchor_window
    WHERE projection = 'device' AND step_id > 0 AND end_ns > start_ns
),

ranged AS (
    SELECT
        rank,
        source,
        min(priority) AS priority,
        count(*) AS step_count,
        arg_min(label, step_id) AS label
    FROM v1.anchor_window
    WHERE projection = 'device'
    GROUP BY rank, source
),

used AS (
    SELECT
        rank,
        arg_min(source, priority) AS source,
        min(priority) AS priority
    FROM ranged
    GROUP BY rank
),

measured AS (
    SELECT
        rank,
        source,
        quantile_disc(length_ns, 0.5) AS median_ns,
        min(length_ns) AS min_ns,
        max(length_ns) AS max_ns,
        min(op_count) AS op_count_min,
        max(op_count) AS op_count_max
    FROM compared
    GROUP BY rank, source
),

-- Anchors number steps from where each begins: windows go together by the time that they cover.
asked AS (
    SELECT
        r.rank,
        r.source,
        a.middle_ns,
        a.length_ns
    FROM used AS u
    INNER JOIN compared AS a ON u.rank = a.rank AND u.source = a.source
    INNER JOIN ranged AS r ON u.rank = r.rank AND u.source <> r.source
),

paired AS (
    SELECT
        a.rank,
        a.source,
        count(*) AS pair_count,
        count(*) FILTER (WHERE abs(b.length_ns - a.length_ns) > 0.02 * a.length_ns) AS apart_count
    FROM asked AS a
    ASOF INNER JOIN compared AS b ON a.rank = b.rank AND a.source = b.source AND a.middle_ns >= b.start_ns
    WHERE a.middle_ns < b.end_ns
    GROUP BY a.rank, a.source
)

SELECT
    r.rank,
    r.source,
    r.priority,
    r.priority = u.priority AS is_used,
    r.label,
    r.step_count,
    m.median_ns,
    m.min_ns,
    m.max_ns,
    m.op_count_min,
    m.op_count_max,
    p.pair_count,
    p.apart_count,
    CASE
        WHEN r.priority = u.priority THEN 'used'
        WHEN m.median_ns IS NULL OR n.median_ns IS NULL THEN 'not compared'
        -- What recurs begins anywhere in the step: only its period can be compared.
        WHEN
            list_has_any(
                [r.source, u.source], ['collective_sequence', 'optimizer_kernels', 'kernel_sequence']
            )
            THEN
                CASE
                    WHEN abs(m.median_ns - n.median_ns) > 0.02 * n.median_ns THEN 'disagrees' ELSE 'agrees'
                END
        WHEN p.pair_count IS NULL THEN 'not compared'
        WHEN p.apart_count > 0 THEN 'disagrees'
        ELSE 'agrees'
    END AS verdict
FROM ranged AS r
INNER JOIN used AS u ON r.rank = u.rank
LEFT JOIN measured AS m ON r.rank = m.rank AND r.source = m.source
LEFT JOIN measured AS n ON u.rank = n.rank AND u.source = n.source
LEFT JOIN paired AS p ON r.rank = p.rank AND r.source = p.source;
