-- view:       v1.step_range
-- purpose:    Step windows on the host, from every anchor that the capture offers.
-- grain:      rank, source, ordinal
-- depends-on: v1.range, v1.name, v1.run_option, v1.rank, v1.device_op, v1.api_call, v1.name_class
-- materialise: rank
-- since:      1
-- columns:
--   rank      BIGINT   -  Global rank.
--   source    VARCHAR  -  user, profiler_step, nvtx_step, gapscope_step, optimizer, collective_sequence, optimizer_kernels or kernel_sequence.
--   priority  INTEGER  -  The lowest priority present is the run's step anchor.
--   ordinal   BIGINT   -  Number of the step, from 0.
--   label     VARCHAR  -  Text of the range, or what recurred.
--   start_ns  BIGINT   ns Start on the host.
--   end_ns    BIGINT   ns End on the host.
--   is_partial BOOLEAN -  The window starts or ends with the capture, not with an anchor.
CREATE OR REPLACE VIEW v1.step_range AS
WITH option AS (
    SELECT max(value) AS pattern
    FROM v1.run_option
    WHERE name = 'steps'
),

sourced AS (
    SELECT
        r.rank,
        r.tid,
        r.range_id,
        n.name AS label,
        r.start_ns,
        r.end_ns,
        regexp_full_match(n.name, p.pattern) AS is_named,
        CASE
            WHEN r.kind = 'user_annotation' AND regexp_full_match(n.name, 'ProfilerStep#\d+')
                THEN 'profiler_step'
            -- Made by GapScope's instrument, between the ends of optimizer steps: the program's own ranges come first.
            WHEN r.domain = 'gapscope' AND regexp_full_match(n.name, 'step \d+') THEN 'gapscope_step'
            WHEN
                r.kind IN ('push_pop', 'start_end', 'user_annotation')
                AND regexp_full_match(
                    n.name,
                    '(?i)(train(ing)?[ _]?)?(step|iter|iteration|global[ _]step)[ _#:=]*\d+'
                )
                THEN 'nvtx_step'
            WHEN
                r.kind IN ('push_pop', 'start_end', 'user_annotation')
                AND regexp_full_match(n.name, '(?i)train(ing)?[ _]?(step|iteration)')
                THEN 'nvtx_step'
            WHEN
                r.kind IN ('user_annotation', 'push_pop')
                AND (
                    regexp_matches(n.name, '^Optimizer\.step#')
                    OR regexp_full_match(n.name, '(?i)optimizer([ _.-]?step)?')
                )
                THEN 'optimizer'
        END AS source
    FROM v1.range AS r
    INNER JOIN v1.name AS n ON r.rank = n.rank AND r.name_id = n.name_id
    CROSS JOIN option AS p
    WHERE r.end_ns > r.start_ns AND r.kind NOT IN ('mark', 'gpu_user_annotation')
),

-- What the user names stays a step of its own anchor too: named are perhaps every second one only.
candidate AS (
    SELECT
        * EXCLUDE (is_named, source),
        source
    FROM sourced
    WHERE source IS NOT NULL
    UNION ALL
    SELECT
        * EXCLUDE (is_named, source),
        'user' AS source
    FROM sourced
    WHERE is_named
),

-- One thread steps; on equal counts the one that starts first.
stepping AS (
    SELECT
        rank,
        source,
        tid
    FROM candidate
    GROUP BY rank, source, tid
    QUALIFY row_number() OVER (PARTITION BY rank, source ORDER BY count(*) DESC, min(start_ns)) = 1
),

-- Of nested candidates the outermost counts. Where two overlap without nesting (rounded edges, start/end
-- ranges), the later begins where the earlier ends: host windows never share an instant.
outermost AS (
    SELECT
        c.rank,
        c.source,
        c.label,
        greatest(c.start_ns, max(c.end_ns) OVER before) AS start_ns,
        c.end_ns
    FROM candidate AS c
    INNER JOIN stepping AS s
        ON c.rank = s.rank AND c.source = s.source AND c.tid IS NOT DISTINCT FROM s.tid
    WINDOW
        before AS (
            PARTITION BY c.rank, c.source
            ORDER BY c.start_ns ASC, c.end_ns DESC
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        )
    QUALIFY c.end_ns > coalesce(max(c.end_ns) OVER before, c.end_ns - 1)
),

-- An optimizer range ends a step: the step runs from the end of the one before.
capture_start AS (
    SELECT
        rank,
        min(start_ns) AS start_ns
    FROM v1.api_call
    GROUP BY rank
),

ranged AS (
    SELECT
        rank,
        source,
        label,
        start_ns,
        end_ns,
        FALSE AS is_partial
    FROM outermost
    WHERE source <> 'optimizer'
    UNION ALL
    SELECT
        o.rank,
        o.source,
        o.label,
        coalesce(
            lag(o.end_ns) OVER by_rank,
            least(s.start_ns, o.start_ns),
            o.start_ns
        ) AS start_ns,
        o.end_ns,
        lag(o.end_ns) OVER by_rank IS NULL AS is_partial
    FROM outermost AS o
    LEFT JOIN capture_start AS s ON o.rank = s.rank
    WHERE o.source = 'optimizer'
    WINDOW by_rank AS (PARTITION BY o.rank ORDER BY o.start_ns)
),

-- Without two such anchors: what recurs after a constant number of launches. Communication first.
uncertain AS (
    SELECT
        k.rank,
        count(DISTINCT r.source) AS anchor_count
    FROM v1.rank AS k
    LEFT JOIN ranged AS r ON k.rank = r.rank
    GROUP BY k.rank
    HAVING count(DISTINCT r.source) < 2
),

-- Beside a range only kernels of the optimizer tell of steps: without any, the launches need no order.
with_optimizer AS (
    SELECT DISTINCT rank
    FROM v1.name_class
    WHERE op_class = 'optimizer'
),

launched AS (
    SELECT
        o.rank,
        l.source,
        u.anchor_count,
        o.name_id,
        o.op_class = 'optimizer' AS is_optimizer,
        coalesce(o.launch_start_ns, o.start_ns) AS at_ns,
        coalesce(o.launch_end_ns, o.start_ns + 1) AS issued_ns,
        row_number() OVER (
            PARTITION BY o.rank, l.source ORDER BY coalesce(o.launch_start_ns, o.start_ns), o.op_id
        ) AS pos
    FROM uncertain AS u
    LEFT JOIN with_optimizer AS w ON u.rank = w.rank
    INNER JOIN v1.device_op AS o ON u.rank = o.rank
    INNER JOIN (VALUES ('collective_sequence'), ('kernel_sequence')) AS l (source)
        ON
            o.kind = 'kernel'
            AND CASE l.source
                WHEN 'kernel_sequence' THEN u.anchor_count = 0 OR w.rank IS NOT NULL
                ELSE o.time_class = 'communication'
            END
),

spaced AS (
    SELECT
        rank,
        source,
        name_id,
        at_ns,
        pos,
        pos - lag(pos) OVER (PARTITION BY rank, source, name_id ORDER BY pos) AS spacing
    FROM launched
    -- Beside a range, kernels that recur say less than it does.
    WHERE source = 'collective_sequence' OR anchor_count = 0
),

-- The longest period, seen at least three times, that most of the sequence repeats.
period AS (
    SELECT
        s.rank,
        s.source,
        s.name_id,
        min(s.spacing) AS period,
        min(s.pos) AS first_pos,
        count(*) AS occurrences
    FROM spaced AS s
    GROUP BY s.rank, s.source, s.name_id
    HAVING
        count(*) >= 3
        AND min(s.spacing) = max(s.spacing)
        -- A handful of kernels that alternate is no training step.
        AND min(s.spacing) >= CASE WHEN s.source = 'kernel_sequence' THEN 20 ELSE 2 END
    QUALIFY
        row_number() OVER (
            PARTITION BY s.rank, s.source ORDER BY min(s.spacing) DESC, min(s.pos)
        ) = 1
),

repeating AS (
    SELECT
        p.rank,
        p.source,
        p.name_id,
        p.period,
        p.first_pos
    FROM period AS p
    INNER JOIN launched AS a ON p.rank = a.rank AND p.source = a.source
    INNER JOIN launched AS b
        ON a.rank = b.rank AND a.source = b.source AND a.pos + p.period = b.pos
    GROUP BY p.rank, p.source, p.name_id, p.period, p.first_pos
    HAVING avg((a.name_id IS NOT DISTINCT FROM b.name_id)::INTEGER) >= 0.9
),

recurring AS (
    SELECT
        l.rank,
        l.source,
        'every ' || r.period || ' ' || CASE
            WHEN l.source = 'collective_sequence' THEN 'collectives' ELSE 'kernels'
        END AS label,
        l.at_ns AS start_ns,
        lead(l.at_ns) OVER (PARTITION BY l.rank, l.source ORDER BY l.pos) AS end_ns
    FROM launched AS l
    INNER JOIN repeating AS r ON l.rank = r.rank AND l.source = r.source AND l.name_id IS NOT DISTINCT FROM r.name_id
),

-- Kernels of the optimizer come in bursts, one a step, with the rest of the step between them.
optimizer_kernel AS (
    SELECT
        rank,
        at_ns,
        issued_ns,
        pos,
        lead(pos) OVER (PARTITION BY rank ORDER BY pos) - pos AS spacing
    FROM launched
    WHERE source = 'kernel_sequence' AND is_optimizer
),

burst_end AS (
    SELECT
        rank,
        issued_ns,
        pos,
        count(*) OVER (PARTITION BY rank) AS burst_count,
        row_number() OVER (PARTITION BY rank ORDER BY pos) AS burst,
        ordinal - lag(ordinal, 1, 0) OVER (PARTITION BY rank ORDER BY pos) AS kernel_count
    FROM (
        SELECT
            rank,
            issued_ns,
            pos,
            row_number() OVER (PARTITION BY rank ORDER BY pos) AS ordinal,
            coalesce(spacing > 0.5 * max(spacing) OVER (PARTITION BY rank), TRUE) AS is_last,
            max(spacing) OVER (PARTITION BY rank) AS widest
        FROM optimizer_kernel
    ) AS placed
    WHERE is_last AND widest >= 20
),

-- The first and the last burst may be cut off by the capture; all others hold as many kernels.
burst AS (
    SELECT
        e.rank,
        e.issued_ns,
        e.burst,
        u.kernel_count
    FROM burst_end AS e
    INNER JOIN (
        SELECT
            rank,
            mode(kernel_count) AS kernel_count
        FROM burst_end
        GROUP BY rank
        HAVING count(*) >= 3
    ) AS u ON e.rank = u.rank
    WHERE e.burst < e.burst_count OR e.kernel_count = u.kernel_count
    QUALIFY bool_and(e.burst IN (1, e.burst_count) OR e.kernel_count = u.kernel_count) OVER (PARTITION BY e.rank)
),

updated AS (
    SELECT
        b.rank,
        'optimizer_kernels' AS source,
        b.kernel_count || ' kernels of the optimizer' AS label,
        coalesce(lag(b.issued_ns) OVER by_rank, least(s.start_ns, f.at_ns)) AS start_ns,
        b.issued_ns AS end_ns,
        lag(b.issued_ns) OVER by_rank IS NULL AS is_partial
    FROM burst AS b
    INNER JOIN (
        SELECT
            rank,
            min(at_ns) AS at_ns
        FROM launched
        GROUP BY rank
    ) AS f ON b.rank = f.rank
    LEFT JOIN capture_start AS s ON b.rank = s.rank
    WINDOW by_rank AS (PARTITION BY b.rank ORDER BY b.burst)
),

everything AS (
    SELECT *
    FROM ranged
    UNION ALL
    SELECT *
    FROM updated
    UNION ALL
    SELECT
        rank,
        source,
        label,
        start_ns,
        end_ns,
        FALSE AS is_partial
    FROM recurring
    WHERE end_ns > start_ns
)

SELECT
    e.rank,
    e.source,
    array_position(
        [
            'user', 'profiler_step', 'nvtx_step', 'gapscope_step', 'optimizer', 'collective_sequence',
            'optimizer_kernels', 'kernel_sequence'
        ],
        e.source
    )::INTEGER AS priority,
    (row_number() OVER (PARTITION BY e.rank, e.source ORDER BY e.start_ns) - 1)::BIGINT AS ordinal,
    e.label,
    e.start_ns,
    e.end_ns,
    e.is_partial
FROM everything AS e;
