-- view:       v1.wait_record
-- purpose:    For each stream wait: the record that it waits for and the last op launched before that record.
-- grain:      rank, wait_id
-- depends-on: v1.stream_wait, v1.event_record, v1.op_launch
-- materialise: rank
-- since:      1
-- columns:
--   rank                  BIGINT  -  Global rank.
--   wait_id               BIGINT  -  Stream wait.
--   stream                BIGINT  -  Waiting stream.
--   correlation_id        BIGINT  -  Correlation id of the wait.
--   record_stream         BIGINT  -  Stream of the record; NULL when the record is unknown.
--   record_correlation_id BIGINT  -  Correlation id of the record; NULL when unknown.
--   op_id                 BIGINT  -  Last op launched on record_stream before the record.
--   op_end_ns             BIGINT  ns Its end.
--   op_correlation_id     BIGINT  -  Its correlation id.
--   is_by_event_id        BOOLEAN -  The record is the latest one of the event id before the wait: CUDA before 12.8 has no sync ids.
CREATE OR REPLACE VIEW v1.wait_record AS
-- Where neither waits nor records have sync ids: cudaStreamWaitEvent waits for the latest record of
-- its event that the host had issued. An event id given to a new event could name an older one's.
WITH named AS (
    SELECT
        w.rank,
        w.wait_id,
        r.stream,
        r.correlation_id
    FROM (
        SELECT
            rank,
            wait_id,
            process_id,
            event_id,
            correlation_id
        FROM v1.stream_wait
        WHERE event_sync_id IS NULL AND record_correlation_id IS NULL AND event_id IS NOT NULL
    ) AS w
    ASOF INNER JOIN (
        SELECT
            rank,
            process_id,
            event_id,
            stream,
            correlation_id
        FROM v1.event_record
        WHERE event_sync_id IS NULL AND event_id IS NOT NULL
    ) AS r
        ON
            w.rank = r.rank
            AND w.process_id IS NOT DISTINCT FROM r.process_id
            AND w.event_id = r.event_id
            AND w.correlation_id > r.correlation_id
),

-- Every other wait joins its record by event sync id, whatever its event id, which is reused.
known AS (
    SELECT
        w.rank,
        w.wait_id,
        w.stream,
        w.correlation_id,
        coalesce(min(r.stream), min(w.record_stream), min(n.stream)) AS record_stream,
        coalesce(
            min(r.correlation_id), min(w.record_correlation_id), min(n.correlation_id)
        ) AS record_correlation_id,
        count(n.wait_id) > 0 AS is_by_event_id
    FROM v1.stream_wait AS w
    LEFT JOIN v1.event_record AS r
        ON
            w.rank = r.rank
            AND w.process_id IS NOT DISTINCT FROM r.process_id
            AND w.event_sync_id = r.event_sync_id
            AND r.correlation_id < w.correlation_id
    LEFT JOIN named AS n ON w.rank = n.rank AND w.wait_id = n.wait_id
    GROUP BY w.rank, w.wait_id, w.stream, w.correlation_id
),

recording AS (
    SELECT DISTINCT
        rank,
        record_stream
    FROM known
    WHERE record_correlation_id IS NOT NULL
),

-- A graph launch puts many ops on a stream under one correlation id: the last to end counts.
launched AS (
    SELECT
        o.rank,
        o.stream,
        o.correlation_id,
        arg_max(o.op_id, o.end_ns) AS op_id,
        max(o.end_ns) AS end_ns
    FROM v1.op_launch AS o
    INNER JOIN recording AS r ON o.rank = r.rank AND o.stream = r.record_stream
    WHERE o.correlation_id IS NOT NULL
    GROUP BY o.rank, o.stream, o.correlation_id
)

SELECT
    k.rank,
    k.wait_id,
    k.stream,
    k.correlation_id,
    k.record_stream,
    k.record_correlation_id,
    o.op_id,
    o.end_ns AS op_end_ns,
    o.correlation_id AS op_correlation_id,
    k.is_by_event_id
FROM known AS k
ASOF LEFT JOIN launched AS o
    ON
        k.rank = o.rank
        AND k.record_stream = o.stream
        AND k.record_correlation_id > o.correlation_id;
