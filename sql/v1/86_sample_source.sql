-- view:       v1.sample_source
-- purpose:    Which capture sampled the device that a rank ran on: its own, or another one of that host, whose times are put onto the rank's clock.
-- grain:      rank
-- depends-on: v1.rank, v1.metric_sample, v1.source_quality, v1.rank_clock
-- materialise: run
-- since:      1
-- columns:
--   rank        BIGINT  -  Global rank whose device was sampled.
--   source_rank BIGINT  -  Rank in whose capture the samples are.
--   device      INTEGER -  Ordinal of the device there; NULL: not visible to that process.
--   device_uuid VARCHAR -  UUID of the device, where the samples state it.
--   offset_ns   BIGINT  ns Added to the times of the samples: 0 in the rank's own capture; NULL where the clocks of the two captures are not known.
--   residual_ns BIGINT  ns How far offset_ns may be off: 0 in the rank's own capture; NULL where no matched collective tells.
CREATE OR REPLACE VIEW v1.sample_source AS
-- A device is sampled by one tool at a time: of ranks that all ask for all devices of a host, whoever comes first has the samples.
WITH sampled AS (
    SELECT DISTINCT
        rank AS source_rank,
        device,
        device_uuid
    FROM v1.metric_sample
),

-- A UUID names one device in the world, so it needs no host; of several ranks on one device nobody knows who ran.
placed AS (
    SELECT
        rank,
        device,
        device_uuid,
        count(*) OVER (PARTITION BY device_uuid) = 1 AS is_alone
    FROM v1.rank
),

-- In the rank's own capture the ordinal will do, unless processes there number the devices differently.
found AS (
    SELECT
        p.rank,
        s.*
    FROM placed AS p
    INNER JOIN sampled AS s ON p.rank = s.source_rank AND p.device = s.device
    LEFT JOIN v1.source_quality AS q ON p.rank = q.rank AND q.check_name = 'metric_device'
    WHERE q.check_name IS NULL
    UNION ALL
    SELECT
        p.rank,
        s.*
    FROM placed AS p
    INNER JOIN sampled AS s ON p.device_uuid = s.device_uuid
    WHERE p.rank = s.source_rank OR p.is_alone
),

chosen AS (
    SELECT *
    FROM found
    QUALIFY
        row_number() OVER (PARTITION BY rank ORDER BY source_rank <> rank, source_rank, device, device_uuid) = 1
)

SELECT
    c.rank,
    c.source_rank,
    c.device,
    c.device_uuid,
    CASE
        WHEN c.rank = c.source_rank THEN 0
        -- A clock that moves within the capture has no one offset.
        WHEN
            s.jump_ns IS NULL
            AND o.jump_ns IS NULL
            AND s.method <> 'matched ends by step'
            AND o.method <> 'matched ends by step'
            THEN s.offset_ns - o.offset_ns
    END AS offset_ns,
    CASE
        WHEN c.rank = c.source_rank THEN 0
        WHEN s.residual_ns IS NOT NULL AND o.residual_ns IS NOT NULL THEN greatest(s.residual_ns, o.residual_ns)
    END AS residual_ns
FROM chosen AS c
LEFT JOIN v1.rank_clock AS s ON c.source_rank = s.rank
LEFT JOIN v1.rank_clock AS o ON c.rank = o.rank;
