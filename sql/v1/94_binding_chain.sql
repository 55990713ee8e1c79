-- view:       v1.binding_chain
-- purpose:    The nodes that pin the bound, in order, and how long each keeps it: the lengths sum to T_lb.
-- grain:      step_id, chain_position
-- depends-on: v1.bound_node
-- materialise: no
-- since:      1
-- columns:
--   step_id        BIGINT  -  Step.
--   chain_position BIGINT  -  Place in the chain, from 0.
--   rank           BIGINT  -  Rank on which the node lies.
--   node           VARCHAR -  Node.
--   rule           VARCHAR -  Rule that ties it to the node before: of the pack, engine, link or join; NULL for the first.
--   start_ns       BIGINT  ns Start in the schedule of the bound.
--   end_ns         BIGINT  ns Its end.
--   length_ns      BIGINT  ns What it adds: its end less that of the node before.
--   lane           VARCHAR -  engine (the compute stream's work), collective, or copy.
--   stretch        BIGINT  -  Number of the stretch: nodes in a row on the compute engine of one pass and rank are one.
-- audit binding_chain_is_as_long_as_the_bound:
--   SELECT c.step_id
--   FROM (
--       SELECT b.step_id, sum(b.length_ns) AS length_ns FROM v1.binding_chain AS b GROUP BY b.step_id
--   ) AS c
--   INNER JOIN (
--       SELECT s.step_id, max(s.t_lb_ns) AS t_lb_ns FROM v1.step_bound AS s GROUP BY s.step_id
--   ) AS t ON c.step_id = t.step_id
--   WHERE c.length_ns <> t.t_lb_ns
CREATE OR REPLACE VIEW v1.binding_chain AS
WITH chain AS (
    SELECT
        *,
        regexp_extract(node, '^[A-Z]+') AS kind,
        contains(node, '''(') AS is_backward_gather
    FROM v1.bound_node
    WHERE chain_position IS NOT NULL
),

placed AS (
    SELECT
        *,
        CASE
            WHEN kind IN ('FWD', 'BWD', 'OPT', 'AGOUT', 'RSIN') THEN 'engine'
            WHEN kind IN ('AG', 'RS', 'AR', 'COMM') THEN 'collective'
            ELSE 'copy'
        END AS lane,
        CASE
            WHEN kind = 'OPT' THEN 'optimizer'
            WHEN kind IN ('BWD', 'RSIN') OR is_backward_gather THEN 'backward'
            ELSE 'forward'
        END AS pass
    FROM chain
),

changed AS (
    SELECT
        *,
        coalesce(
            lane <> 'engine'
            OR (lane, pass, rank) IS DISTINCT FROM lag((lane, pass, rank)) OVER following,
            TRUE
        ) AS is_new,
        lag(end_ns) OVER following AS before_ns
    FROM placed
    WINDOW following AS (PARTITION BY step_id ORDER BY chain_position)
)

SELECT
    step_id,
    chain_position,
    rank,
    node,
    chain_rule AS rule,
    start_ns,
    end_ns,
    end_ns - coalesce(before_ns, 0) AS length_ns,
    lane,
    count(*) FILTER (WHERE is_new) OVER (
        PARTITION BY step_id ORDER BY chain_position
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) - 1 AS stretch
FROM changed;
