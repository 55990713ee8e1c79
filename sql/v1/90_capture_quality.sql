-- view:       v1.capture_quality
-- purpose:    What the capture can and cannot support: the readers' notes and checks over the rows.
-- grain:      rank, check_name
-- depends-on: v1.source_quality, v1.rank, v1.collective_match, v1.rank_clock, v1.rank_quality, v1.step, v1.step_window, v1.audit_result, v1.ingest_note, v1.tool_quality, v1.analysis_contract, v1.perturbation, v1.profiler_activity, v1.operator_metric, v1.kernel_inventory, v1.part_span, v1.metric_sample, v1.sample_source, v1.metric_alignment
-- materialise: run
-- since:      1
-- columns:
--   rank        BIGINT   -  Global rank; NULL: the whole run.
--   check_name  VARCHAR  -  Stable name of the check.
--   status      VARCHAR  -  ok, info, warn or fail.
--   detail      VARCHAR  -  What was seen, with counts.
--   forbids     VARCHAR  -  What cannot be said because of it; NULL when nothing.
CREATE OR REPLACE VIEW v1.capture_quality AS
-- When each rank was captured, in Unix time: a base alone says nothing, for Kineto's is the same for months.
WITH captured AS (
    SELECT
        r.rank,
        r.world_size,
        r.clock_base_ns + w.start_ns AS at_ns
    FROM v1.rank AS r
    LEFT JOIN v1.step_window AS w ON r.rank = w.rank AND w.projection = 'capture'
),

boundary AS (
    SELECT
        rank,
        count(*) AS step_count,
        count(*) FILTER (WHERE is_boundary) AS boundary_count,
        string_agg(step_id || ' (' || boundary_reason || ')', ', ' ORDER BY step_id)
        FILTER (WHERE is_boundary) AS reasons
    FROM v1.step
    GROUP BY rank
),

unmatched AS (
    SELECT
        unmatched AS reason,
        count(*) AS op_count
    FROM v1.collective_match
    GROUP BY unmatched
),

usual_step AS (
    SELECT
        rank,
        median(device_end_ns - device_start_ns) AS step_ns
    FROM v1.step
    GROUP BY rank
),

shared AS (
    SELECT
        device_uuid,
        count(*) AS rank_count,
        string_agg(rank::VARCHAR, ', ' ORDER BY rank) AS ranks
    FROM v1.rank
    WHERE device_uuid IS NOT NULL
    GROUP BY device_uuid
    HAVING count(*) > 1
),

present AS (
    SELECT
        count(*) AS rank_count,
        coalesce(max(r.world_size), max(a.value::BIGINT)) AS world_size,
        count(c.offset_ns) AS aligned_count,
        count(*) FILTER (WHERE c.method = 'matched ends by step') AS by_step_count
    FROM v1.rank AS r
    LEFT JOIN v1.rank_clock AS c ON r.rank = c.rank
    LEFT JOIN v1.analysis_contract AS a ON a.item = 'world_size'
),

audit AS (
    SELECT
        rank,
        audit_name,
        failed_count
    FROM v1.audit_result
),

step_count AS (
    SELECT count(DISTINCT steps) AS distinct_counts
    FROM (
        SELECT count(s.step_id) AS steps
        FROM v1.rank AS r
        LEFT JOIN v1.step AS s ON r.rank = s.rank
        GROUP BY r.rank
    ) AS counted
),

anchor_count AS (
    SELECT
        count(DISTINCT source) AS distinct_count,
        string_agg(source || ' on ' || rank_count, ', ' ORDER BY source) AS anchors
    FROM (
        SELECT
            source,
            count(DISTINCT rank) AS rank_count
        FROM v1.step
        GROUP BY source
    ) AS by_source
),

compute AS (
    SELECT sum(volume_ns) AS volume_ns
    FROM v1.kernel_inventory
    WHERE time_class = 'compute'
),

-- Compute of the run whose kernels a capture of metrics has, on whichever of its devices.
metrics_covered AS (
    SELECT
        m.source_path,
        sum(m.covered_ns) / any_value(c.volume_ns) AS covered_share
    FROM (
        SELECT
            source_path,
            op_class,
            max(covered_share * timing_volume_ns) AS covered_ns
        FROM v1.operator_metric
        WHERE rank IS NULL AND level = 'class' AND time_class = 'compute'
        GROUP BY source_path, op_class
    ) AS m
    CROSS JOIN compute AS c
    GROUP BY m.source_path
),

-- Ranks beyond the world are no ranks that could be captured.
part_captured AS (
    SELECT
        s.part,
        sum(s.captured_count) AS captured_count,
        sum(greatest(0, least(s.last_rank + 1, p.world_size) - s.first_rank)) AS rank_count
    FROM v1.part_span AS s
    CROSS JOIN present AS p
    GROUP BY s.part
),

whole_run AS (
    SELECT
        'world_coverage' AS check_name,
        CASE
            WHEN world_size IS NULL THEN 'info'
            WHEN rank_count < world_size THEN 'warn'
            ELSE 'ok'
        END AS status,
        CASE
            WHEN world_size IS NULL THEN rank_count || ' ranks; nothing states the world size'
            ELSE rank_count || ' of ' || world_size || ' ranks captured'
        END AS detail,
        CASE
            WHEN rank_count < world_size THEN 'verdicts about ranks that are not in the capture'
        END AS forbids
    FROM present
    UNION ALL
    SELECT
        'one_job' AS check_name,
        'fail' AS status,
        concat_ws(
            '; ',
            CASE
                WHEN count(DISTINCT world_size) > 1
                    THEN
                        'world sizes '
                        || string_agg(DISTINCT world_size::VARCHAR, ', ' ORDER BY world_size::VARCHAR)
            END,
            CASE WHEN max(at_ns) - min(at_ns) > 86400000000000 THEN 'captured more than a day apart' END
        ) || ': these captures are not of one job' AS detail,
        'anything that compares or sums ranks' AS forbids
    FROM captured
    HAVING count(DISTINCT world_size) > 1 OR max(at_ns) - min(at_ns) > 86400000000000
    UNION ALL
    SELECT
        'parts_captured' AS check_name,
        'info' AS status,
        'ranks that [parts] names were not captured: '
        || string_agg(printf('of %s %d of %d were', part, captured_count, rank_count), ', ' ORDER BY part)
            AS detail,
        NULL AS forbids
    FROM part_captured
    WHERE captured_count < rank_count
    HAVING count(*) > 0
    UNION ALL
    SELECT
        'clock_alignment' AS check_name,
        'info' AS status,
        'neither the captures nor matched collectives relate the clocks of the ranks' AS detail,
        'statements that compare instants of two ranks (skew, last arrival)' AS forbids
    FROM present
    WHERE rank_count > 1 AND aligned_count < rank_count
    UNION ALL
    -- What is wrong in a capture, other than what no capture can have.
    SELECT
        'collectives_unmatched' AS check_name,
        CASE
            WHEN
                bool_and(reason IN ('point to point', 'outside of steps without a number', 'ranks not captured'))
                FILTER (WHERE reason IS NOT NULL)
                THEN 'info'
            ELSE 'warn'
        END AS status,
        sum(op_count) FILTER (WHERE reason IS NOT NULL) || ' of ' || sum(op_count)
        || ' collective operations are not matched: '
        || string_agg(reason || ' ' || op_count, ', ' ORDER BY reason) FILTER (WHERE reason IS NOT NULL) AS detail,
        'last arrival, transfer and bandwidth of these, and waits for other ranks in them' AS forbids
    FROM unmatched
    HAVING count(reason) > 0
    UNION ALL
    SELECT
        'clock_by_step' AS check_name,
        'info' AS status,
        'clocks of the ranks move against each other by more than the ends of collectives spread: each step is '
        || 'compared on what its own matched collectives say' AS detail,
        'comparing instants of two ranks outside of steps' AS forbids
    FROM present
    WHERE by_step_count > 0
    UNION ALL
    SELECT
        'shared_device' AS check_name,
        'warn' AS status,
        string_agg('ranks ' || ranks || ' share device ' || left(device_uuid, 13), '; ' ORDER BY ranks)
            AS detail,
        'budgets as those of an exclusive device: ranks that share one contend' AS forbids
    FROM shared
    HAVING count(*) > 0
    UNION ALL
    SELECT
        'step_count' AS check_name,
        'warn' AS status,
        'ranks disagree on the number of steps' AS detail,
        'comparisons of one step between ranks' AS forbids
    FROM step_count
    WHERE distinct_counts > 1
    UNION ALL
    SELECT
        'step_anchor_mix' AS check_name,
        'warn' AS status,
        'ranks take their steps from different anchors: ' || anchors AS detail,
        'comparisons of one step between ranks' AS forbids
    FROM anchor_count
    WHERE distinct_count > 1
    UNION ALL
    SELECT
        'analysis_contract' AS check_name,
        CASE WHEN count(value) = count(*) THEN 'ok' ELSE 'info' END AS status,
        printf('%d of %d items are known', count(value), count(*))
        || coalesce('; unknown: ' || string_agg(item, ', ' ORDER BY ordinal) FILTER (WHERE value IS NULL), '')
            AS detail,
        NULL AS forbids
    FROM v1.analysis_contract
    HAVING count(*) > 0
    UNION ALL
    SELECT
        'contract_contradiction' AS check_name,
        'warn' AS status,
        string_agg(item || ': ' || contradiction, '; ' ORDER BY ordinal) AS detail,
        'what rests on the declared values' AS forbids
    FROM v1.analysis_contract
    WHERE contradiction IS NOT NULL
    HAVING count(*) > 0
    UNION ALL
    SELECT
        'metrics_coverage:' || source_path AS check_name,
        CASE WHEN coalesce(covered_share, 0) < 0.5 THEN 'warn' ELSE 'ok' END AS status,
        printf('%.1f %% of the compute volume is of kernels that it sampled', 100 * coalesce(covered_share, 0))
        || CASE WHEN coalesce(covered_share, 0) < 0.5 THEN ': is it of another workload?' ELSE '' END AS detail,
        CASE WHEN coalesce(covered_share, 0) < 0.5 THEN 'hardware metrics of most of this run' END AS forbids
    FROM metrics_covered
    UNION ALL
    SELECT
        'audits' AS check_name,
        CASE WHEN sum(failed_count) > 0 THEN 'fail' ELSE 'ok' END AS status,
        CASE
            WHEN sum(failed_count) > 0
                THEN
                    string_agg(DISTINCT audit_name, ', ' ORDER BY audit_name)
                    FILTER (WHERE failed_count > 0)
                    || ' failed'
            ELSE count(DISTINCT audit_name) || ' audits hold on every rank'
        END AS detail,
        CASE WHEN sum(failed_count) > 0 THEN 'any number of this run' END AS forbids
    FROM audit
    HAVING count(*) > 0
),

-- Devices that were sampled and whose samples nothing uses, with the reason. A second capture of one is no loss.
unmet AS (
    SELECT
        m.rank,
        coalesce('device ' || m.device, left(m.device_uuid, 13), 'a device that its process does not see')
        || CASE
            WHEN m.device_uuid IS NULL THEN ' (the capture names no UUID to find it by)'
            WHEN r.device_uuid IS NULL THEN ' (no captured rank ran on it)'
            ELSE ' (several captured ranks ran on it)'
        END AS device
    FROM (
        SELECT DISTINCT
            rank,
            device,
            device_uuid
        FROM v1.metric_sample
    ) AS m
    LEFT JOIN (
        SELECT
            device_uuid,
            count(*) AS rank_count
        FROM v1.rank
        GROUP BY device_uuid
    ) AS r ON m.device_uuid = r.device_uuid
    WHERE
        coalesce(r.rank_count, 2) > 1
        AND NOT EXISTS (
            SELECT 1
            FROM v1.sample_source AS s
            WHERE
                m.rank = s.source_rank
                AND m.device IS NOT DISTINCT FROM s.device
                AND m.device_uuid IS NOT DISTINCT FROM s.device_uuid
        )
),

-- Ranks whose device another rank's capture sampled.
sampled_elsewhere AS (
    SELECT
        a.*,
        s.offset_ns,
        s.residual_ns
    FROM v1.metric_alignment AS a
    INNER JOIN v1.sample_source AS s ON a.rank = s.rank
    WHERE a.rank <> a.source_rank
),

of_rank AS (
    SELECT
        rank,
        'metric_source' AS check_name,
        CASE WHEN status = 'ok' THEN 'info' ELSE 'warn' END AS status,
        'its device was sampled in the capture of rank ' || source_rank || CASE status
            WHEN 'ok'
                THEN
                    printf('; the clocks of the two are known to %.1f us', residual_ns / 1e3)
                    || coalesce(
                        printf(
                            '; %s is %.1f points off the busy share of this rank',
                            metric, least(after_error, before_error)
                        ),
                        ''
                    )
            WHEN 'no overlap' THEN ', but not while ops of this rank were recorded'
            WHEN 'misfit'
                THEN
                    printf(
                        ', but %s is %.1f points off the busy share of this rank: they do not fit each other',
                        metric, least(after_error, before_error)
                    )
            ELSE
                ', but it is not known to within a sample how their clocks stand'
                || coalesce(printf(' (to %.1f us, one sample every %.1f us)', residual_ns / 1e3, period_ns / 1e3), '')
        END AS detail,
        CASE WHEN status <> 'ok' THEN 'hardware metrics of this rank' END AS forbids
    FROM sampled_elsewhere
    UNION ALL
    SELECT
        u.rank,
        'metrics_unmet' AS check_name,
        CASE WHEN any_value(s.source_rank) IS NULL THEN 'warn' ELSE 'info' END AS status,
        'samples of ' || string_agg(DISTINCT u.device, ', ' ORDER BY u.device) || ' meet no device op' AS detail,
        CASE
            WHEN any_value(s.source_rank) IS NULL THEN 'hardware metrics from the samples of this capture'
        END AS forbids
    FROM unmet AS u
    LEFT JOIN (SELECT DISTINCT source_rank FROM v1.sample_source) AS s ON u.rank = s.source_rank
    GROUP BY u.rank
    UNION ALL
    SELECT
        rank,
        'rank_number' AS check_name,
        CASE WHEN rank_source = 'provisional' THEN 'warn' ELSE 'info' END AS status,
        CASE
            WHEN rank_source = 'provisional' THEN 'the source does not state its rank; the number is provisional'
            ELSE 'the rank number is ' || CASE
                WHEN rank_source = 'declared' THEN 'declared' ELSE 'taken from the file name'
            END
        END AS detail,
        CASE WHEN rank_source = 'provisional' THEN 'which rank of the job this is' END AS forbids
    FROM v1.rank
    WHERE rank_source IN ('provisional', 'file name', 'declared')
    UNION ALL
    SELECT
        rank,
        'boundary_steps' AS check_name,
        CASE WHEN boundary_count = step_count THEN 'warn' ELSE 'info' END AS status,
        boundary_count || ' of ' || step_count || ' steps stay out of medians: ' || reasons AS detail,
        CASE WHEN boundary_count = step_count THEN 'a typical step' END AS forbids
    FROM boundary
    WHERE boundary_count > 0
    UNION ALL
    SELECT
        p.rank,
        'perturbation' AS check_name,
        CASE WHEN p.verdict = 'not material' THEN 'ok' ELSE 'warn' END AS status,
        printf(
            '%s: profiled steps take %.3f ms (n=%d, %.3f to %.3f), '
            || 'unprofiled ones %.3f ms (n=%d, %.3f to %.3f)',
            p.verdict, p.profiled_median_ns / 1e6, p.profiled_count, p.profiled_min_ns / 1e6,
            p.profiled_max_ns / 1e6, p.reference_median_ns / 1e6, p.reference_count, p.reference_min_ns / 1e6,
            p.reference_max_ns / 1e6
        ) || coalesce(printf(', %+.1f %%', 100 * p.slowdown), '') || CASE
            WHEN p.verdict = 'perturbed'
                THEN
                    printf(
                        '; nothing is corrected for it, and the %.3f ms that the tool recorded of its own work '
                        || 'are not it',
                        coalesce(t.volume_ns, 0) / 1e6
                    )
            ELSE ''
        END AS detail,
        CASE
            WHEN p.verdict = 'perturbed' THEN 'times and gains of an unprofiled run: all are those of a slower one'
            WHEN p.verdict IN ('faster', 'implausible') THEN 'whether profiling slowed the run'
        END AS forbids
    FROM v1.perturbation AS p
    LEFT JOIN (
        SELECT
            rank,
            sum(volume_ns) AS volume_ns
        FROM v1.profiler_activity
        WHERE is_tool
        GROUP BY rank
    ) AS t ON p.rank = t.rank
    UNION ALL
    -- Of two ranks it cannot be told whose clock it was.
    SELECT
        rank,
        'clock_jump' AS check_name,
        'warn' AS status,
        'the clock jumps by ' || round(jump_ns / 1e6, 1) || ' ms against the other ranks, in or beside step '
        || coalesce(jump_steps, 'none') AS detail,
        'how long these steps are on this rank, and any skew (R3) in them' AS forbids
    FROM v1.rank_clock
    WHERE jump_ns IS NOT NULL
    UNION ALL
    SELECT
        c.rank,
        'clock_residual' AS check_name,
        'warn' AS status,
        'ends of matched collectives are ' || round(c.residual_ns / 1e6, 2)
        || ' ms apart on whatever clock: over 5 % of a step' AS detail,
        'skew (R3), last arrival and lateness on this rank' AS forbids
    FROM v1.rank_clock AS c
    INNER JOIN usual_step AS u ON c.rank = u.rank
    WHERE c.residual_ns > 0.05 * u.step_ns
)

SELECT
    rank,
    check_name,
    status,
    detail,
    forbids
FROM v1.source_quality
UNION ALL
SELECT
    rank,
    check_name,
    status,
    detail,
    forbids
FROM v1.rank_quality
UNION ALL
SELECT
    rank,
    check_name,
    status,
    detail,
    forbids
FROM v1.tool_quality
-- That its own capture holds no samples is no loss where another one does.
WHERE
    check_name <> 'gpu_metrics'
    OR status <> 'info'
    OR rank NOT IN (SELECT s.rank FROM sampled_elsewhere AS s)
    OR rank IN (SELECT s.rank FROM v1.metric_sample AS s)
UNION ALL
SELECT
    rank,
    check_name,
    status,
    detail,
    forbids
FROM of_rank
UNION ALL
SELECT
    NULL AS rank,
    check_name,
    status,
    detail,
    forbids
FROM v1.ingest_note
UNION ALL
SELECT
    NULL AS rank,
    check_name,
    status,
    detail,
    forbids
FROM whole_run;
