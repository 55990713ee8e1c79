-- view:       v1.range_segment
-- purpose:    Innermost open range of a thread from each instant at which it changes, of ranges that hold a CUDA call.
-- grain:      rank, layer, tid, at_ns
-- depends-on: v1.call_range, v1.name
-- materialise: no
-- since:      1
-- columns:
--   rank          BIGINT   -  Global rank.
--   layer         VARCHAR  -  all: every nested range; annotation: those that a person or framework placed.
--   tid           BIGINT   -  Thread.
--   at_ns         BIGINT   ns From here on ...
--   range_id      BIGINT   -  ... this range is the innermost open one; NULL when none is.
--   open_until_ns BIGINT   ns End of that range; guards against ranges that do not nest.
CREATE OR REPLACE VIEW v1.range_segment AS
-- Push/pop and record_function ranges nest per thread; start/end ranges do not and stay out.
WITH nested AS (
    SELECT
        r.rank,
        r.tid,
        r.range_id,
        r.start_ns,
        coalesce(r.end_ns, 4000000000000000000) AS end_ns,
        -- emit_nvtx() turns every ATen op into a range with an op number; those are not annotations.
        (
            r.kind = 'user_annotation'
            OR (r.kind = 'push_pop' AND r.external_id IS NULL)
            OR n.name LIKE 'FSDP::%'
        ) AS is_annotation
    FROM v1.call_range AS r
    INNER JOIN v1.name AS n ON r.rank = n.rank AND r.name_id = n.name_id
    WHERE
        r.kind IN ('push_pop', 'user_annotation', 'cpu_op')
        AND r.tid IS NOT NULL
        AND coalesce(r.end_ns, 4000000000000000000) > r.start_ns
),

layered AS (
    SELECT
        'all' AS layer,
        rank,
        tid,
        range_id,
        start_ns,
        end_ns
    FROM nested
    UNION ALL
    SELECT
        'annotation' AS layer,
        rank,
        tid,
        range_id,
        start_ns,
        end_ns
    FROM nested
    WHERE is_annotation
),

boundary AS (
    SELECT
        layer,
        rank,
        tid,
        range_id,
        start_ns,
        end_ns,
        start_ns AS at_ns,
        1 AS delta
    FROM layered
    UNION ALL
    SELECT
        layer,
        rank,
        tid,
        range_id,
        start_ns,
        end_ns,
        end_ns AS at_ns,
        -1 AS delta
    FROM layered
    WHERE end_ns < 4000000000000000000
),

-- At one instant: ends before starts, inner ends first, outer starts first.
ordered AS (
    SELECT
        layer,
        rank,
        tid,
        range_id,
        end_ns,
        at_ns,
        delta,
        row_number() OVER nesting AS pos,
        sum(delta) OVER nesting AS depth,
        coalesce(lead(at_ns) OVER nesting > at_ns, TRUE) AS is_last_at
    FROM boundary
    WINDOW nesting AS (
        PARTITION BY layer, rank, tid
        ORDER BY at_ns, delta, -delta * (end_ns - start_ns), delta * range_id
    )
),

-- After each boundary the innermost range is the latest one opened at the depth that is left. Depth, not
-- the parent of the range that ends, so that one which outlives its parent by a rounding error hides nothing.
left_open AS (
    SELECT
        layer,
        rank,
        tid,
        at_ns,
        is_last_at,
        last_value(CASE WHEN delta = 1 THEN range_id END IGNORE NULLS) OVER at_depth AS range_id,
        last_value(CASE WHEN delta = 1 THEN end_ns END IGNORE NULLS) OVER at_depth AS open_until_ns
    FROM ordered
    WINDOW at_depth AS (
        PARTITION BY layer, rank, tid, depth
        ORDER BY pos
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
)

SELECT
    rank,
    layer,
    tid,
    at_ns,
    range_id,
    open_until_ns
FROM left_open
WHERE is_last_at;
