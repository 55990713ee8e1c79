-- view:       v1.step_budget
-- purpose:    Where the time of each step went, on each rank: unions that close to the nanosecond.
-- grain:      rank, projection, step_id
-- depends-on: v1.window_budget, v1.step
-- materialise: run
-- since:      1
-- columns:
--   rank              BIGINT   -  Global rank.
--   step_id           BIGINT   -  Number of the step, from 0; 0 in the capture row.
--   projection        VARCHAR  -  host, device or capture.
--   step_ns           BIGINT   ns Length of the window.
--   busy_ns           BIGINT   ns Union of all device ops.
--   idle_ns           BIGINT   ns step_ns - busy_ns.
--   compute_ns        BIGINT   ns Union of compute kernels and opaque graphs.
--   noncomm_ns        BIGINT   ns Union of all kernels and graphs that do not communicate, packing in, copies and memsets out.
--   comm_ns           BIGINT   ns Union of communication kernels.
--   exposed_comm_ns   BIGINT   ns Communication minus every other device op.
--   copy_ns           BIGINT   ns Union of memcpys.
--   compute_absent_ns BIGINT   ns step_ns - compute_ns.
--   launch_starved_ns BIGINT   ns Part of compute-absent: the next compute op was not issued yet.
--   blocking_ns       BIGINT   ns Part of compute-absent: issued, and its latest recorded producer still ran. Queue serialization hides here and in stalled_ns.
--   stalled_ns        BIGINT   ns Part of compute-absent: issued, no recorded reason.
--   tail_ns           BIGINT   ns Part of compute-absent: after the last compute op of the window.
--   is_boundary       BOOLEAN  -  Stays out of medians and verdicts; NULL in the capture row.
CREATE OR REPLACE VIEW v1.step_budget AS
SELECT
    b.rank,
    b.step_id,
    b.projection,
    b.step_ns,
    b.busy_ns,
    b.idle_ns,
    b.compute_ns,
    b.noncomm_ns,
    b.comm_ns,
    b.exposed_comm_ns,
    b.copy_ns,
    b.compute_absent_ns,
    b.launch_starved_ns,
    b.blocking_ns,
    b.stalled_ns,
    b.tail_ns,
    s.is_boundary
FROM v1.window_budget AS b
LEFT JOIN v1.step AS s
    ON b.rank = s.rank AND b.step_id = s.step_id AND b.projection <> 'capture';
