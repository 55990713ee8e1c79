-- view:       v1.copy_summary
-- purpose:    Copies and memsets by direction and memory kinds, with the rate they reached.
-- grain:      rank, kind, copy_kind, src_memory, dst_memory
-- depends-on: v1.op
-- materialise: no
-- since:      1
-- columns:
--   rank          BIGINT   -    Global rank.
--   kind          VARCHAR  -    memcpy or memset.
--   copy_kind     VARCHAR  -    HtoD, DtoH, DtoD, ...; NULL for memsets.
--   src_memory    VARCHAR  -    Source memory kind.
--   dst_memory    VARCHAR  -    Destination memory kind.
--   op_count      BIGINT   -    Ops.
--   bytes         BIGINT   B    Bytes; NULL when the source does not carry them.
--   volume_ns     BIGINT   ns   Work volume.
--   bytes_per_ns  DOUBLE   GB/s Bytes over work volume.
CREATE OR REPLACE VIEW v1.copy_summary AS
SELECT
    o.rank,
    o.kind,
    o.copy_kind,
    o.src_memory,
    o.dst_memory,
    count(*) AS op_count,
    sum(o.bytes)::BIGINT AS bytes,
    sum(o.dur_ns)::BIGINT AS volume_ns,
    sum(o.bytes) / sum(o.dur_ns) FILTER (WHERE o.bytes IS NOT NULL) AS bytes_per_ns
FROM v1.op AS o
WHERE o.kind IN ('memcpy', 'memset')
GROUP BY o.rank, o.kind, o.copy_kind, o.src_memory, o.dst_memory;
