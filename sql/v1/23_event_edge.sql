-- view:       v1.event_edge
-- purpose:    Which device ops a stream wait waits for: the recording stream's last op before the record, or what that stream waited for itself.
-- grain:      rank, wait_id, producer_op_id
-- depends-on: v1.wait_record, v1.wait_relay, v1.op_launch
-- materialise: rank
-- since:      1
-- columns:
--   rank            BIGINT   -  Global rank.
--   wait_id         BIGINT   -  Stream wait.
--   wait_stream     BIGINT   -  Waiting stream.
--   wait_correlation_id BIGINT - Correlation id of the wait.
--   consumer_op_id  BIGINT   -  First op launched on the waiting stream after the wait.
--   is_recorded     BOOLEAN  -  Whether the record that is waited for is known.
--   hops            INTEGER  -  0: the recording stream had an op; n: relayed through n waits.
--   producer_op_id  BIGINT   -  Op that is waited for; NULL when none was found.
--   producer_end_ns BIGINT   ns Its end (event timestamps may be zero, so the op's end counts).
--   is_complete     BOOLEAN  -  Whether all that is waited for could be followed: no unknown record, no relay beyond four hops. Complete without a producer: nothing in the capture is waited for.
CREATE OR REPLACE VIEW v1.event_edge AS
WITH RECURSIVE reached AS (
    SELECT
        rank,
        wait_id,
        wait_id AS at_wait_id,
        0 AS hops
    FROM v1.wait_record
    WHERE record_correlation_id IS NOT NULL
    UNION
    SELECT
        r.rank,
        r.wait_id,
        y.via_wait_id AS at_wait_id,
        r.hops + 1 AS hops
    FROM reached AS r
    INNER JOIN v1.wait_relay AS y ON r.rank = y.rank AND r.at_wait_id = y.wait_id
    WHERE r.hops < 4
),

produced AS (
    SELECT
        r.rank,
        r.wait_id,
        w.op_id AS producer_op_id,
        any_value(w.op_end_ns) AS producer_end_ns,
        min(r.hops) AS hops
    FROM reached AS r
    INNER JOIN v1.wait_record AS w ON r.rank = w.rank AND r.at_wait_id = w.wait_id
    WHERE w.op_id IS NOT NULL
    GROUP BY r.rank, r.wait_id, w.op_id
),

-- A wait is followed to its end unless a record on the way is unknown or a relay goes on behind the last hop.
relaying AS (
    SELECT DISTINCT
        rank,
        wait_id
    FROM v1.wait_relay
),

followed AS (
    SELECT
        r.rank,
        r.wait_id,
        bool_and(
            w.record_correlation_id IS NOT NULL AND (r.hops < 4 OR y.wait_id IS NULL)
        ) AS is_complete
    FROM reached AS r
    INNER JOIN v1.wait_record AS w ON r.rank = w.rank AND r.at_wait_id = w.wait_id
    LEFT JOIN relaying AS y ON r.rank = y.rank AND r.at_wait_id = y.wait_id
    GROUP BY r.rank, r.wait_id
),

waiting AS (
    SELECT DISTINCT
        rank,
        stream
    FROM v1.wait_record
),

-- Of the ops of one graph launch the first to start is the one that waits.
launched AS (
    SELECT
        o.rank,
        o.stream,
        o.correlation_id,
        arg_min(o.op_id, o.start_ns) AS op_id
    FROM v1.op_launch AS o
    INNER JOIN waiting AS w ON o.rank = w.rank AND o.stream = w.stream
    WHERE o.correlation_id IS NOT NULL
    GROUP BY o.rank, o.stream, o.correlation_id
),

consumed AS (
    SELECT
        w.rank,
        w.wait_id,
        o.op_id AS consumer_op_id
    FROM v1.wait_record AS w
    ASOF INNER JOIN launched AS o
        ON w.rank = o.rank AND w.stream = o.stream AND w.correlation_id < o.correlation_id
)

SELECT
    w.rank,
    w.wait_id,
    w.stream AS wait_stream,
    w.correlation_id AS wait_correlation_id,
    c.consumer_op_id,
    w.record_correlation_id IS NOT NULL AS is_recorded,
    p.hops::INTEGER AS hops,
    p.producer_op_id,
    p.producer_end_ns,
    coalesce(f.is_complete, FALSE) AS is_complete
FROM v1.wait_record AS w
LEFT JOIN followed AS f ON w.rank = f.rank AND w.wait_id = f.wait_id
LEFT JOIN produced AS p ON w.rank = p.rank AND w.wait_id = p.wait_id
LEFT JOIN consumed AS c ON w.rank = c.rank AND w.wait_id = c.wait_id;
