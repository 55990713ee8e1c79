-- view:       v1.stack_link
-- purpose:    How many launches of a rank have a call stack: the link rate, which has nothing to do with how many ops have a launch.
-- grain:      rank
-- depends-on: v1.launch_stack, v1.call_stack
-- materialise: no
-- since:      1
-- columns:
--   rank          BIGINT  -  Global rank.
--   launch_count  BIGINT  -  Launching API calls of ops that count.
--   linked_count  BIGINT  -  Of these, with a stack.
--   checked_count BIGINT  -  Of these, where the stack's capture names the same kernel or is this one.
--   link_rate     DOUBLE  1  linked_count / launch_count.
--   given_count   BIGINT  -  Stacks that a capture of their own has for this rank.
CREATE OR REPLACE VIEW v1.stack_link AS
WITH given AS (
    SELECT
        rank,
        count(*) AS given_count
    FROM v1.call_stack
    GROUP BY rank
)

SELECT
    l.rank,
    count(*) AS launch_count,
    count(l.stack) AS linked_count,
    count(*) FILTER (WHERE l.is_checked) AS checked_count,
    count(l.stack) / count(*) AS link_rate,
    coalesce(any_value(g.given_count), 0) AS given_count
FROM v1.launch_stack AS l
LEFT JOIN given AS g ON l.rank = g.rank
GROUP BY l.rank;
