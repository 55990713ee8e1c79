-- view:       v1.collective_copy
-- purpose:    Copies that a copy engine made for a collective: within or between devices, issued straight from a collective's call.
-- grain:      rank, op_id
-- depends-on: v1.op_launch, v1.gpu_op, v1.range, v1.name
-- materialise: rank
-- since:      1
-- columns:
--   rank      BIGINT  -  Global rank.
--   op_id     BIGINT  -  Copy.
--   range_id  BIGINT  -  Innermost range open at its launch: the evidence.
CREATE OR REPLACE VIEW v1.collective_copy AS
-- The innermost range only: what copies around a collective (aten::copy_ below c10d::allgather_) is packing or a copy. NCCL
-- says which of its calls runs in a domain of its own; PyTorch's ops have names of theirs. Copies to or from the host never count.
WITH called AS (
    SELECT
        r.rank,
        r.range_id
    FROM v1.range AS r
    INNER JOIN v1.name AS n ON r.rank = n.rank AND r.name_id = n.name_id
    WHERE
        (
            r.domain = 'NCCL'
            AND regexp_matches(
                n.name, '^nccl(All|Reduce|Broadcast|Bcast|Gather|Scatter|Send|Recv|GroupEnd|Put)'
            )
        )
        OR (r.domain IS DISTINCT FROM 'NCCL' AND regexp_matches(n.name, '^(record_param_comms$|nccl:|symm_mem::)'))
)

SELECT
    o.rank,
    o.op_id,
    c.range_id
FROM v1.op_launch AS o
INNER JOIN called AS c ON o.rank = c.rank AND o.context_range_id = c.range_id
INNER JOIN v1.gpu_op AS g ON o.rank = g.rank AND o.op_id = g.op_id
WHERE o.kind = 'memcpy' AND g.copy_kind IN ('DtoD', 'PtoP');
