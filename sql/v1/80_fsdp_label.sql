-- view:       v1.fsdp_label
-- purpose:    FSDP2's own labels, and those of the optimizer, taken apart: what is done, and to which unit.
-- grain:      rank, range_id
-- depends-on: v1.range, v1.name
-- materialise: rank
-- since:      1
-- columns:
--   rank          BIGINT   -  Global rank.
--   range_id      BIGINT   -  Range that carries the label.
--   tid           BIGINT   -  Thread.
--   verb          VARCHAR  -  pre_forward, all_gather, all_gather_copy_out, post_forward, pre_backward, post_backward_reduce, ..., optimizer.
--   unit          VARCHAR  -  Module FQN; '' for the root, and for labels that name no module.
--   start_ns      BIGINT   ns Start.
--   end_ns        BIGINT   ns End; NULL where the range was still open.
CREATE OR REPLACE VIEW v1.fsdp_label AS
-- torch writes `FSDP::<verb> (<fqn>)`, `FSDP::<verb> for <fqn>` for prefetches, the bare verb for the root, and from
-- 2.12 a suffix ` [pg=N]` where a module has several groups. `emit_nvtx` adds numbers of the op behind.
WITH written AS (
    SELECT
        rank,
        name_id,
        regexp_replace(name, '(, (seq|op_id|sizes|input_op_ids) = [^()]*)+$', '') AS name
    FROM v1.name
),

said AS (
    SELECT
        n.rank,
        n.name_id,
        regexp_extract(n.name, '^FSDP::([a-z_]+)', 1) AS verb,
        coalesce(
            nullif(regexp_extract(n.name, '(?s)^FSDP::[a-z_]+ \((.*)\)( \[pg=\d+\])?$', 1), ''),
            nullif(regexp_extract(n.name, '(?s)^FSDP::[a-z_]+ for (.*?)( \[pg=\d+\])?$', 1), ''),
            ''
        ) AS unit
    FROM written AS n
    WHERE n.name LIKE 'FSDP::%'
    UNION ALL
    SELECT
        n.rank,
        n.name_id,
        'optimizer' AS verb,
        '' AS unit
    FROM written AS n
    WHERE n.name LIKE 'Optimizer.step#%' OR n.name LIKE 'Optimizer.zero\_grad#%' ESCAPE '\'
)

-- Where GapScope's instrument says the labels, those that another source said too would count twice.
SELECT
    r.rank,
    r.range_id,
    r.tid,
    s.verb,
    s.unit,
    r.start_ns,
    r.end_ns
FROM v1.range AS r
INNER JOIN said AS s ON r.rank = s.rank AND r.name_id = s.name_id
WHERE r.tid IS NOT NULL AND r.kind <> 'gpu_user_annotation'
QUALIFY
    coalesce(r.domain = 'gapscope', FALSE)
    OR NOT coalesce(bool_or(r.domain = 'gapscope') OVER (PARTITION BY r.rank, s.verb = 'optimizer'), FALSE);
