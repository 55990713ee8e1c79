-- view:       v1.range_segment
-- purpose:    Innermost open range of a thread from each instant at which it changes.
-- grain:      rank, layer, tid, at_ns
-- depends-on: v1.range, v1.name
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
        coalesce(r.end_ns, 9223372036854775807) AS end_ns,
        -- emit_nvtx() turns every ATen op into a range with an op number; those are not annotations.
        (
            r.kind = 'user_annotation'
            OR (r.kind = 'push_pop' AND r.external_id IS NULL)
            OR n.name LIKE 'FSDP::%'
        ) AS is_annotation
    FROM v1.range AS r
    INNER JOIN v1.name AS n ON r.rank = n.rank AND r.name_id = n.name_id
    WHERE
        r.kind IN ('push_pop', 'user_annotation', 'cpu_op')
        AND r.tid IS NOT NULL
        AND coalesce(r.end_ns, 9223372036854775807) > r.start_ns
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
        sum(delta) OVER nesting AS depth
    FROM boundary
    WINDOW nesting AS (
        PARTITION BY layer, rank, tid
        ORDER BY at_ns, delta, -delta * (end_ns - start_ns), delta * range_id
    )
),

opening AS (
    SELECT
        layer,
        rank,
        tid,
        range_id,
        end_ns,
        pos,
        depth
    FROM ordered
    WHERE delta = 1
),

-- The parent of a range is the latest range opened one level further out.
parent AS (
    SELECT
        c.layer,
        c.rank,
        c.range_id,
        p.range_id AS parent_id,
        p.end_ns AS parent_end_ns
    FROM opening AS c
    ASOF LEFT JOIN opening AS p
        ON
            c.layer = p.layer
            AND c.rank = p.rank
            AND c.tid = p.tid
            AND c.depth - 1 = p.depth
            AND c.pos >= p.pos
)

SELECT
    o.rank,
    o.layer,
    o.tid,
    o.at_ns,
    CASE WHEN o.delta = 1 THEN o.range_id ELSE p.parent_id END AS range_id,
    CASE WHEN o.delta = 1 THEN o.end_ns ELSE p.parent_end_ns END AS open_until_ns
FROM ordered AS o
LEFT JOIN parent AS p ON o.layer = p.layer AND o.rank = p.rank AND o.range_id = p.range_id
QUALIFY row_number() OVER (PARTITION BY o.layer, o.rank, o.tid, o.at_ns ORDER BY o.pos DESC) = 1;
