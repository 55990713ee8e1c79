-- view:       pair.part
-- purpose:    The parts of every compared window, in ledgers that each sum to it; the run's own step is that of its slowest rank.
-- grain:      side, subject, step_number, ledger, part
-- depends-on: pair.counted
-- materialise: no
-- since:      1
-- columns:
--   side        VARCHAR -  A or B.
--   subject     BIGINT  -  Global rank; NULL for the run, whose step is the longest over the compared ranks.
--   rank        BIGINT  -  Rank that the numbers come from.
--   step_number BIGINT  -  Step of the run.
--   units       BIGINT  -  Units of work in the window.
--   step_ns     BIGINT  ns Length of the window.
--   is_middle   BOOLEAN -  It is the median window of its side, or one of the two in the middle.
--   ledger      VARCHAR -  split: what compute waits for, by recorded launches and waits; device: what the device does; model: mechanisms; bound: T_lb and what lies above it.
--   part        VARCHAR -  Part of it.
--   position    INTEGER -  Its place in the ledger.
--   part_ns     BIGINT  ns Its length; NULL where the run does not know.
-- audit ledgers_close:
--   SELECT p.side, p.subject, p.step_number, p.ledger FROM pair.part AS p
--   GROUP BY p.side, p.subject, p.step_number, p.ledger
--   HAVING count(p.part_ns) = count(*) AND sum(p.part_ns) <> any_value(p.step_ns)
CREATE OR REPLACE VIEW pair.part AS
WITH placed AS (
    SELECT
        *,
        count(*) OVER (PARTITION BY side, step_number) AS here,
        row_number() OVER (
            PARTITION BY side, step_number ORDER BY step_ns / units DESC, rank
        ) AS place
    FROM pair.counted
),

extent AS (
    SELECT count(DISTINCT rank) AS ranks
    FROM pair.counted
),

subject AS (
    SELECT
        rank AS subject,
        *
    FROM placed
    UNION ALL
    -- A step that some rank does not have, or not as one that counts, is no step of the run.
    SELECT
        NULL AS subject,
        p.*
    FROM placed AS p
    INNER JOIN extent AS e ON p.here = e.ranks
    WHERE p.place = 1
),

ordered AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY side, subject ORDER BY step_ns / units, step_number
        ) AS nth,
        count(*) OVER (PARTITION BY side, subject) AS windows
    FROM subject
),

entry (ledger, part, position) AS (
    VALUES
    ('split', 'compute', 1),
    ('split', 'launch_starved', 2),
    ('split', 'blocking', 3),
    ('split', 'stalled', 4),
    ('split', 'tail', 5),
    ('device', 'compute', 1),
    ('device', 'packing', 2),
    ('device', 'exposed_comm', 3),
    ('device', 'copy', 4),
    ('device', 'idle', 5),
    ('bound', 't_lb', 1),
    ('bound', 'gap', 2),
    ('model', 'compute', 1),
    ('model', 'work', 2),
    ('model', 'H1', 3),
    ('model', 'H2', 4),
    ('model', 'R1', 5),
    ('model', 'R2', 6),
    ('model', 'R3', 7),
    ('model', 'floor', 8),
    ('model', 'unresolved', 9),
    ('model', 'carried', 10)
)

SELECT
    s.side,
    s.subject,
    s.rank,
    s.step_number,
    s.units,
    s.step_ns,
    s.nth IN ((s.windows + 1) // 2, s.windows // 2 + 1) AS is_middle,
    e.ledger,
    e.part,
    e.position,
    CASE concat_ws(' ', e.ledger, e.part)
        WHEN 'split compute' THEN s.compute_ns
        WHEN 'split launch_starved' THEN s.launch_starved_ns
        WHEN 'split blocking' THEN s.blocking_ns
        WHEN 'split stalled' THEN s.stalled_ns
        WHEN 'split tail' THEN s.tail_ns
        WHEN 'device compute' THEN s.compute_ns
        WHEN 'device packing' THEN s.packing_ns
        WHEN 'device exposed_comm' THEN s.exposed_comm_ns
        WHEN 'device copy' THEN s.copy_ns
        WHEN 'device idle' THEN s.idle_ns
        WHEN 'bound t_lb' THEN s.t_lb_ns
        WHEN 'bound gap' THEN s.step_ns - s.t_lb_ns
        WHEN 'model compute' THEN s.model_compute_ns
        WHEN 'model work' THEN s.work_ns
        WHEN 'model H1' THEN s.h1_ns
        WHEN 'model H2' THEN s.h2_ns
        WHEN 'model R1' THEN s.r1_ns
        WHEN 'model R2' THEN s.r2_ns
        WHEN 'model R3' THEN s.r3_ns
        WHEN 'model floor' THEN s.floor_ns
        WHEN 'model unresolved' THEN s.unresolved_ns
        WHEN 'model carried' THEN s.carried_ns
    END AS part_ns
FROM ordered AS s
CROSS JOIN entry AS e
-- Unknown where ranks are missing: what it would be lies in H1 and H2.
WHERE e.part <> 'R3' OR s.r3_ns IS NOT NULL;
