-- view:       pair.queue
-- purpose:    Streams that were found to share a hardware queue.
-- grain:      streams
-- depends-on: v1.hardware_queue
-- materialise: side
-- since:      1
-- columns:
--   streams        VARCHAR -  Streams of the lowest rank, with what runs on them.
--   instance_count BIGINT  -  Ops that started late, and just with the op that held them.
CREATE OR REPLACE VIEW pair.queue AS
SELECT
    streams,
    sum(instance_count)::BIGINT AS instance_count
FROM v1.hardware_queue
GROUP BY streams;
