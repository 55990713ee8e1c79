-- view:       pair.program
-- purpose:    The program of nodes that a rank runs in most of the steps that count.
-- grain:      rank
-- depends-on: v1.program_node, v1.step
-- materialise: side
-- since:      1
-- columns:
--   rank          BIGINT  -  Global rank.
--   program       VARCHAR -  Digest of the names of its nodes in host issue order.
--   node_count    BIGINT  -  Nodes.
--   step_count    BIGINT  -  Steps that run it.
--   program_count BIGINT  -  Programs that the steps run.
CREATE OR REPLACE VIEW pair.program AS
WITH of_step AS (
    SELECT
        p.rank,
        p.step_id,
        md5(string_agg(p.node, ' ' ORDER BY p.node_id)) AS program,
        count(*) AS node_count
    FROM v1.program_node AS p
    INNER JOIN v1.step AS s ON p.rank = s.rank AND p.step_id = s.step_id
    WHERE NOT s.is_boundary
    GROUP BY p.rank, p.step_id
),

counted AS (
    SELECT
        rank,
        program,
        min(node_count) AS node_count,
        count(*) AS step_count,
        count(*) OVER (PARTITION BY rank) AS program_count
    FROM of_step
    GROUP BY rank, program
)

SELECT
    rank,
    program,
    node_count,
    step_count,
    program_count
FROM counted
QUALIFY row_number() OVER (PARTITION BY rank ORDER BY step_count DESC, program ASC) = 1;
