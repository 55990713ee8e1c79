-- view:       pair.collective
-- purpose:    Collectives of a rank over the steps that count: how many, how much.
-- grain:      rank, type
-- depends-on: v1.collective_census, v1.step
-- materialise: side
-- since:      1
-- columns:
--   rank       BIGINT  -  Global rank.
--   type       VARCHAR -  Kind of operation.
--   op_count   BIGINT  -  Communication kernels, over all steps that count, or in the whole capture.
--   bytes      BIGINT  B  What they moved; NULL unless known for every one.
CREATE OR REPLACE VIEW pair.collective AS
SELECT
    c.rank,
    c.type,
    sum(c.op_count)::BIGINT AS op_count,
    CASE WHEN count(c.bytes) = count(*) THEN sum(c.bytes) END::BIGINT AS bytes
FROM v1.collective_census AS c
LEFT JOIN v1.step AS s ON c.rank = s.rank AND c.step_id = s.step_id
WHERE getvariable('gapscope_projection') = 'capture' OR NOT s.is_boundary
GROUP BY c.rank, c.type;
