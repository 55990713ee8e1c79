-- view:       v1.wait_relay
-- purpose:    Waits of the recording stream that a stream wait inherits, because no op stands between them and the record.
-- grain:      rank, wait_id, via_wait_id
-- depends-on: v1.wait_record
-- materialise: rank
-- since:      1
-- columns:
--   rank         BIGINT  -  Global rank.
--   wait_id      BIGINT  -  Stream wait.
--   via_wait_id  BIGINT  -  Wait of the recording stream that it inherits; its own record may be unknown.
CREATE OR REPLACE VIEW v1.wait_relay AS
-- Per stream only the latest wait is followed: NCCL's ordering stream carries no op and would
-- relay without end. Waits for unknown records count as waits for one more stream.
WITH upstream AS (
    SELECT DISTINCT
        rank,
        stream,
        record_stream
    FROM v1.wait_record
    WHERE record_stream IS DISTINCT FROM stream
),

asked AS (
    SELECT
        w.rank,
        w.wait_id,
        w.record_stream AS stream,
        u.record_stream,
        w.record_correlation_id,
        w.op_correlation_id
    FROM v1.wait_record AS w
    INNER JOIN upstream AS u ON w.rank = u.rank AND w.record_stream = u.stream
)

SELECT
    a.rank,
    a.wait_id,
    k.wait_id AS via_wait_id
FROM asked AS a
ASOF INNER JOIN v1.wait_record AS k
    ON
        a.rank = k.rank
        AND a.stream = k.stream
        AND a.record_stream IS NOT DISTINCT FROM k.record_stream
        AND a.record_correlation_id > k.correlation_id
WHERE k.correlation_id > coalesce(a.op_correlation_id, -1);
