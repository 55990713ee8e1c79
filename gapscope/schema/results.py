"""Result tables: what Python computes goes back into the run, one place a number."""

from __future__ import annotations

from gapscope.schema.tables import Table, table_of

_MODEL = (
    table_of(
        "model_check",
        "check_name, step_id",
        "Whether the model may speak, and what it withholds otherwise.",
        """
        check_name     VARCHAR -  Stable name of the check.
        step_id        BIGINT  -  Step; NULL: the run.
        status         VARCHAR -  ok, info, warn or fail.
        measured       DOUBLE  -  What was measured, in the unit that detail states; NULL where nothing is.
        allowed        DOUBLE  -  Limit of the check.
        detail         VARCHAR -  What was found.
        withholds      VARCHAR -  bound, ladder or verdict; NULL when nothing is withheld.
        """,
    ),
    table_of(
        "step_gap",
        "rank, step_id",
        "Where the time of each step went, down to the bound; NULL where the bound is withheld.",
        """
        rank           BIGINT  -  Global rank.
        step_id        BIGINT  -  Step.
        observed_ns    BIGINT  ns Device window of the step.
        t_lb_ns        BIGINT  ns Bound of the rules on this rank, for the measured work.
        gap_ns         BIGINT  ns observed_ns - t_lb_ns.
        compute_ns     BIGINT  ns Compute busy.
        work_ns        BIGINT  ns Compute engine busy with copies, without compute.
        r1_ns          BIGINT  ns Late launch.
        r2_ns          BIGINT  ns Queue serialization.
        r3_ns          BIGINT  ns Cross-rank skew; NULL: unknown, since collectives lack participants and none was seen.
        h1_ns          BIGINT  ns Structural idle of the bound.
        h2_ns          BIGINT  ns Budget idle of the bound.
        floor_ns       BIGINT  ns Launch floor.
        unresolved_ns  BIGINT  ns No cause found.
        carried_ns     BIGINT  ns Recoverable by the bound, but not found by the walk.
        is_boundary    BOOLEAN -  The step stays out of medians and verdicts.
        is_provisional BOOLEAN -  The verdict is refused; the classes are not to be relied on.
        """,
    ),
    table_of(
        "gap_piece",
        "rank, step_id, start_ns",
        "Compute-absent time in pieces, each with one class and the evidence for it.",
        """
        rank           BIGINT  -  Global rank.
        step_id        BIGINT  -  Step.
        start_ns       BIGINT  ns Start on the rank's own clock.
        end_ns         BIGINT  ns End.
        gap_class      VARCHAR -  R1, R2, R3, H1, H2, work, floor, unresolved or carried.
        sub_cause      VARCHAR -  R1: what the launching thread did; R2: stream, hw_queue; R3: the laggard's own reason.
        op_id          BIGINT  -  Device op that waited, or that worked.
        node           VARCHAR -  Its node.
        culprit_rank   BIGINT  -  Rank that came last, where one is to blame.
        rule           VARCHAR -  Rule of the pack, engine, link, join, stream or Q1.
        awaited_node   VARCHAR -  Collective that a hard piece waits for.
        is_hidden      BOOLEAN -  The lateness lies before the gap and shows as transfer inside it.
        cause_rank     BIGINT  -  Rank on which the cause lies.
        cause_start_ns BIGINT  ns When the cause began, on that rank's own clock.
        cause_end_ns   BIGINT  ns When it ended.
        is_provisional BOOLEAN -  The verdict is refused; the class is not to be relied on.
        """,
    ),
    table_of(
        "what_if",
        "rank, step_id, removed",
        "Length of each step when mechanisms are removed; no row where the ladder is refused, nor of R3 where collectives lack participants.",
        """
        rank           BIGINT  -  Global rank.
        step_id        BIGINT  -  Step.
        removed        VARCHAR -  '' (replay as executed), R1, R2, R3, R1+R2, ..., R1+R2+R3.
        step_ns        BIGINT  ns Replayed length; a run's step is the largest over ranks.
        stretched_ns   BIGINT  ns The same with newly overlapped compute slowed as the capture shows; NULL: not measurable.
        """,
    ),
    table_of(
        "what_if_change",
        "rank, step_id, change",
        "Length of each step after one change that a user can make.",
        """
        rank           BIGINT  -  Global rank.
        step_id        BIGINT  -  Step.
        change         VARCHAR -  The change.
        step_ns        BIGINT  ns Replayed length with everything else as executed; newly overlapped compute is not slowed.
        """,
    ),
    table_of(
        "step_bound",
        "rank, step_id",
        "The bound beside what it would be with other limits.",
        """
        rank           BIGINT  -  Global rank.
        step_id        BIGINT  -  Step.
        t_lb_ns        BIGINT  ns At equal memory, engine and communicators in host issue order.
        plus_one_ns    BIGINT  ns With one more buffer of each kind.
        free_engine_ns BIGINT  ns Without an order of the compute engine.
        free_link_ns   BIGINT  ns Without an order of the communicators.
        shortest_ns    BIGINT  ns With every transfer as long as its shortest participant.
        engine_ns      BIGINT  ns Work of the compute engine alone.
        link_ns        BIGINT  ns Transfers of the busiest communicator alone.
        """,
    ),
    table_of(
        "bound_node",
        "rank, step_id, node_id",
        "Schedule of the bound, node by node.",
        """
        rank           BIGINT  -  Global rank.
        step_id        BIGINT  -  Step.
        node_id        BIGINT  -  Number of the node in host issue order.
        node           VARCHAR -  Node.
        start_ns       BIGINT  ns Earliest start from the common origin of all ranks.
        end_ns         BIGINT  ns Its end.
        slack_ns       BIGINT  ns How much later it could end without a longer step.
        chain_position BIGINT  -  Place in the binding chain; NULL outside of it.
        chain_rule     VARCHAR -  Rule that ties it to the node before in the chain.
        """,
    ),
    table_of(
        "hardware_queue",
        "streams, first_step_id",
        "Streams that were found to share an in-order hardware queue (rule Q1).",
        """
        streams          VARCHAR -  Streams of the lowest rank, with what runs on them.
        until            VARCHAR -  What frees the queue: start or end of the op before.
        instance_count   BIGINT  -  Ops that started late, and just with the op that held them.
        counter_examples BIGINT  -  Ops that started although the rule would have held them.
        first_step_id    BIGINT  -  First of the steps that ran the same program, for which this holds.
        """,
    ),
    table_of(
        "launch_floor",
        "kind, first_step_id",
        "What a start costs after everything it waits for.",
        """
        kind           VARCHAR -  same_stream, cross_stream, after_copy, issue: p95, at most 30 us; replay: median of one stream.
        floor_ns       BIGINT  ns The floor.
        first_step_id  BIGINT  -  First of the steps that ran the same program, for which this holds.
        """,
    ),
)

_METRICS_CAPTURE = (
    table_of(
        "captured_metric",
        "source_path, device, level, time_class, op_class, name, metric",
        "What `v1.class_metric` says of captures of hardware metrics (`gapscope ingest --metrics`), which are no ranks of the run.",
        """
        source_path    VARCHAR -  The capture.
        source_digest  VARCHAR -  blake2b-128 of the file.
        device         BIGINT  -  Device ordinal in it.
        period_ns      BIGINT  ns Usual distance of two samples.
        level          VARCHAR -  class, or op for one name.
        time_class     VARCHAR -  Class.
        op_class       VARCHAR -  Finer class.
        name           VARCHAR -  Kernel or copy name; NULL in rows of a class.
        metric         VARCHAR -  Metric with its unit, as the tool names it.
        sample_count   BIGINT  -  Samples in whose time it ran at all.
        clear_count    BIGINT  -  Of these, those in which no other class (or name) ran.
        full_count     BIGINT  -  Of these, those of whose time it ran 90 % or more: the values are of these.
        exclusivity    DOUBLE  1  clear_count / sample_count; NULL where it was never sampled.
        mean_value     DOUBLE  -  Mean in the unit of the metric; NULL without a full sample.
        min_value      DOUBLE  -  Smallest.
        max_value      DOUBLE  -  Largest.
        status         VARCHAR -  ok; contaminated: exclusivity below 0.5; unsampled: no full sample, so nothing is known.
        """,
    ),
)

# What the dependency model fills, and empties before it does.
MODEL_TABLES: dict[str, Table] = {table.name: table for table in _MODEL}
RESULT_TABLES: dict[str, Table] = {
    **MODEL_TABLES,
    **{table.name: table for table in _METRICS_CAPTURE},
}
