"""Canonical tables: the one description of what a run stores.

Times are BIGINT nanoseconds on the rank's own trace clock, unknown is NULL, `rank` is the Hive
partition of the Parquet path (and so the last column that a view adds, never a stored one).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

# History: 1 = first layout.
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Column:
    """One column: DuckDB type, unit (`-` where none applies) and meaning."""

    name: str
    type: str
    unit: str
    doc: str


@dataclass(frozen=True)
class Table:
    """One canonical table: its grain and its columns in stored order."""

    name: str
    grain: str
    doc: str
    columns: tuple[Column, ...]

    def arrow_schema(self) -> pa.Schema:
        """Arrow schema of the stored columns (`rank` is not stored)."""
        import pyarrow as pa

        types = {
            "BIGINT": pa.int64(),
            "INTEGER": pa.int32(),
            "DOUBLE": pa.float64(),
            "VARCHAR": pa.string(),
            "BOOLEAN": pa.bool_(),
        }
        return pa.schema([pa.field(c.name, types[c.type]) for c in self.columns])


def table_of(name: str, grain: str, doc: str, text: str) -> Table:
    """A table whose columns are written one a line: name, type, unit, meaning."""
    columns = []
    for line in text.strip().splitlines():
        column, type_, unit, meaning = line.split(None, 3)
        columns.append(Column(column, type_, unit, meaning))
    return Table(name, grain, doc, tuple(columns))


_TABLES = (
    table_of(
        "rank",
        "rank",
        "Who was captured, with which tool, and where its rank number comes from.",
        """
        hostname         VARCHAR -  Host name, when the source states it.
        process_id       BIGINT  -  Process id (Nsight: the global process id).
        device           INTEGER -  Device ordinal as the process sees it; NULL without device ops.
        device_uuid      VARCHAR -  Device UUID; two ranks with one UUID share a device.
        device_name      VARCHAR -  Device model.
        source_format    VARCHAR -  gapscope, nsys, kineto or simulated.
        source_path      VARCHAR -  Input path relative to the ingested directory.
        source_bytes     BIGINT  B  Size of the input file.
        source_digest    VARCHAR -  blake2b-128 of the input file.
        tool_version     VARCHAR -  Version of the capturing tool, as the source states it.
        cuda_driver      VARCHAR -  CUDA driver version (CUDA numbering, e.g. 13000).
        cuda_runtime     VARCHAR -  CUDA runtime version.
        nccl_version     VARCHAR -  NCCL version.
        world_size       BIGINT  -  World size, when the source states it.
        part             VARCHAR -  Pipeline stage or part label; NULL until declared.
        rank_source      VARCHAR -  distributedInfo, RANK, SLURM_PROCID, OMPI_COMM_WORLD_RANK, PMI_RANK, declared, file name, simulated or provisional.
        clock_base_ns    BIGINT  ns Unix time of trace time 0; NULL when the source does not state it.
        clock_offset_ns  BIGINT  ns Added to this rank's times to compare ranks; NULL while unknown.
        clock_residual_ns BIGINT ns Uncertainty of clock_offset_ns; NULL while unknown.
        """,
    ),
    table_of(
        "gpu_op",
        "rank, op_id",
        "One row a device activity: kernel, memcpy, memset, or a CUDA graph traced as one record.",
        """
        op_id            BIGINT  -  Number of the op within its rank.
        kind             VARCHAR -  kernel, memcpy, memset or graph.
        name_id          BIGINT  -  Name of the kernel or copy.
        process_id       BIGINT  -  Process that launched it.
        device           INTEGER -  Device ordinal.
        context          BIGINT  -  CUDA context id.
        stream           BIGINT  -  Stream id.
        start_ns         BIGINT  ns Start on the device.
        end_ns           BIGINT  ns End on the device.
        correlation_id   BIGINT  -  Correlation id of the launching API call.
        graph_id         BIGINT  -  CUDA graph id (graph records).
        graph_node_id    BIGINT  -  CUDA graph node id (node-level captures).
        bytes            BIGINT  B  Bytes copied or set.
        copy_kind        VARCHAR -  HtoD, DtoH, DtoD, PtoP, HtoH, ...
        src_memory       VARCHAR -  Source memory kind: pageable, pinned, device, array, managed.
        dst_memory       VARCHAR -  Destination memory kind.
        grid_x           BIGINT  -  Grid size x.
        grid_y           BIGINT  -  Grid size y.
        grid_z           BIGINT  -  Grid size z.
        block_x          BIGINT  -  Block size x.
        block_y          BIGINT  -  Block size y.
        block_z          BIGINT  -  Block size z.
        queued_ns        BIGINT  ns Time queued, when the source has it.
        submitted_ns     BIGINT  ns Time submitted, when the source has it.
        """,
    ),
    table_of(
        "api_call",
        "rank, call_id",
        "One row a CUDA (or HIP) runtime or driver call.",
        """
        call_id          BIGINT  -  Number of the call within its rank.
        process_id       BIGINT  -  Calling process.
        tid              BIGINT  -  Calling thread.
        domain           VARCHAR -  runtime or driver.
        name_id          BIGINT  -  Function name, version suffix removed.
        start_ns         BIGINT  ns Entry.
        end_ns           BIGINT  ns Return.
        correlation_id   BIGINT  -  Correlation id, in host issue order within a process.
        return_code      BIGINT  -  CUDA result; NULL when the source does not carry it.
        """,
    ),
    table_of(
        "event_record",
        "rank, correlation_id",
        "One row a cudaEventRecord on a stream.",
        """
        process_id       BIGINT  -  Process.
        device           INTEGER -  Device ordinal.
        context          BIGINT  -  CUDA context id.
        stream           BIGINT  -  Recording stream.
        event_id         BIGINT  -  Event handle number; reused.
        event_sync_id    BIGINT  -  Id shared by a record and the waits on it; never reused.
        correlation_id   BIGINT  -  Correlation id of the recording call.
        record_ns        BIGINT  ns Device timestamp of the event; NULL when not traced.
        """,
    ),
    table_of(
        "stream_wait",
        "rank, wait_id",
        "One row a cudaStreamWaitEvent.",
        """
        wait_id          BIGINT  -  Number of the wait within its rank.
        process_id       BIGINT  -  Process.
        device           INTEGER -  Device ordinal.
        context          BIGINT  -  CUDA context id.
        stream           BIGINT  -  Waiting stream.
        event_id         BIGINT  -  Event handle number.
        event_sync_id    BIGINT  -  Id of the record that is waited for.
        record_stream    BIGINT  -  Stream of that record, when the wait itself states it.
        record_correlation_id BIGINT - Correlation id of that record, when the wait itself states it.
        correlation_id   BIGINT  -  Correlation id of the waiting call.
        start_ns         BIGINT  ns Start of the wait record.
        end_ns           BIGINT  ns End of the wait record.
        """,
    ),
    table_of(
        "host_sync",
        "rank, correlation_id, kind",
        "One row a host-side synchronization (event, stream, context).",
        """
        process_id       BIGINT  -  Process.
        device           INTEGER -  Device ordinal.
        kind             VARCHAR -  event, stream, context or unknown.
        stream           BIGINT  -  Stream, for stream synchronization.
        event_id         BIGINT  -  Event handle number.
        event_sync_id    BIGINT  -  Id of the record that is waited for.
        correlation_id   BIGINT  -  Correlation id of the call.
        start_ns         BIGINT  ns Start.
        end_ns           BIGINT  ns End.
        """,
    ),
    table_of(
        "range",
        "rank, range_id",
        "One row an NVTX range or mark, a record_function range, or its projection on the device.",
        """
        range_id         BIGINT  -  Number of the range within its rank.
        process_id       BIGINT  -  Process.
        tid              BIGINT  -  Thread; NULL for device projections.
        domain           VARCHAR -  NVTX domain, or pytorch.
        kind             VARCHAR -  push_pop, start_end, mark, user_annotation, cpu_op or gpu_user_annotation.
        name_id          BIGINT  -  Text of the range.
        start_ns         BIGINT  ns Start.
        end_ns           BIGINT  ns End; NULL where the range was still open; = start for marks.
        device           INTEGER -  Device, for device projections.
        stream           BIGINT  -  Stream, for device projections.
        external_id      BIGINT  -  Number of the op: Kineto's external id, or emit_nvtx's op_id.
        sequence_number  BIGINT  -  Autograd sequence number, linking forward and backward.
        """,
    ),
    table_of(
        "collective",
        "rank, collective_id",
        "One row a collective call on a rank.",
        """
        collective_id    BIGINT  -  Number of the call within its rank.
        group_name       VARCHAR -  Process group name.
        group_desc       VARCHAR -  Process group description.
        seq              BIGINT  -  Sequence number in the group, when the source has it.
        type             VARCHAR -  all_gather, reduce_scatter, all_reduce, broadcast, all_to_all, send, recv, barrier, ...
        dtype            VARCHAR -  Element type.
        elements_in      BIGINT  -  Elements of the input message.
        elements_out     BIGINT  -  Elements of the output message.
        group_size       BIGINT  -  Ranks in the group.
        group_ranks      VARCHAR -  Global ranks in the group, as the source lists them.
        peer_rank        BIGINT  -  Peer of a point-to-point operation.
        tid              BIGINT  -  Calling thread, when known.
        start_ns         BIGINT  ns Start of the host call, when known.
        end_ns           BIGINT  ns End of the host call, when known.
        correlation_id   BIGINT  -  Correlation id of the launch, when known.
        op_id            BIGINT  -  Device op of the call, when known.
        """,
    ),
    table_of(
        "metric_sample",
        "rank, device, device_uuid, ts_ns, name_id",
        "One row a sampled hardware metric, of whichever device of the host; v1.sample_source tells whose that is.",
        """
        device           INTEGER -  Device ordinal; NULL for a device that the process does not see.
        ts_ns            BIGINT  ns Sample time.
        name_id          BIGINT  -  Metric name with its unit.
        value            DOUBLE  -  Value in the unit of the name; Nsight Systems gives clocks in Hz under a name with MHz.
        device_uuid      VARCHAR -  Device UUID, where the source states it.
        """,
    ),
    table_of(
        "python_frame",
        "rank, tid, start_ns, frame_id",
        "One row a call of a Python function that the profiler followed (Kineto's with_stack).",
        """
        process_id       BIGINT  -  Process.
        tid              BIGINT  -  Thread.
        frame_id         BIGINT  -  Number of the call, as the source has it.
        parent_id        BIGINT  -  Call that it is inside of.
        name_id          BIGINT  -  File, line and function; directories removed.
        start_ns         BIGINT  ns Entry.
        end_ns           BIGINT  ns Return; NULL when it was still open.
        """,
    ),
    table_of(
        "call_stack",
        "rank, thread, ordinal",
        "Call stacks of launches from a capture of their own (`--stacks`), of the same program.",
        """
        thread           BIGINT  -  Launching thread, as that capture numbers it.
        ordinal          BIGINT  -  Number of the launch on that thread, from 0.
        name             VARCHAR -  Kernel that was launched, where that capture says so.
        stack            VARCHAR -  Frames from the outermost to the innermost, `;` between them; directories removed.
        """,
    ),
    table_of(
        "overhead",
        "rank, start_ns, tid, name_id",
        "One row a stretch of time that the profiler itself took.",
        """
        process_id       BIGINT  -  Process.
        tid              BIGINT  -  Thread.
        name_id          BIGINT  -  What the profiler did.
        start_ns         BIGINT  ns Start.
        end_ns           BIGINT  ns End.
        """,
    ),
    table_of(
        "diagnostic",
        "rank, diagnostic_id",
        "One row a message of the capturing tool; paths are replaced by <path>.",
        """
        diagnostic_id    BIGINT  -  Number of the message within its rank.
        ts_ns            BIGINT  ns Time of the message.
        severity         VARCHAR -  info, warning or error.
        source           VARCHAR -  Component that wrote it.
        text             VARCHAR -  Message.
        """,
    ),
    table_of(
        "clock_anchor",
        "rank, kind, ts_ns",
        "One row a pair of clock readings.",
        """
        ts_ns            BIGINT  ns Trace clock.
        kind             VARCHAR -  unix, system_monotonic, or rank0: rank 0's trace clock, by an exchange between the ranks.
        value_ns         BIGINT  ns The other clock at ts_ns.
        uncertainty_ns   BIGINT  ns How far value_ns may be off; NULL where the source does not say.
        """,
    ),
    table_of(
        "process_group",
        "rank, group_name",
        "One row a process group that the rank belongs to.",
        """
        group_name       VARCHAR -  Name.
        group_desc       VARCHAR -  Description.
        backend          VARCHAR -  Backend configuration.
        group_size       BIGINT  -  Number of ranks.
        group_ranks      VARCHAR -  Global ranks.
        """,
    ),
    table_of(
        "fsdp_group",
        "rank, root, ordinal",
        "One row a parameter group of FSDP2 with what it was told to do, where the program says so.",
        """
        root             BIGINT  -  Number of the FSDP2 root, in the order of first forwards.
        ordinal          BIGINT  -  Number of the group below its root, in the order of the root's modules.
        unit             VARCHAR -  Module FQN as in FSDP2's labels; '' for the root.
        parameters       BIGINT  -  Parameters.
        elements         BIGINT  -  Elements of all of them, unsharded.
        shard_size       BIGINT  -  Ranks that shard it.
        replicate_size   BIGINT  -  Ranks that hold copies of a shard (hybrid sharding).
        reshard_size     BIGINT  -  Ranks that shard it between forward and backward: 1 where it stays unsharded.
        param_dtype      VARCHAR -  Type that it is gathered and computed in; NULL: its own.
        reduce_dtype     VARCHAR -  Type that its gradients are reduced in; NULL: that of the gradients.
        unshard_in_backward BIGINT - 0 where backward does without gathering it.
        reduce_inputs    BIGINT  -  Inputs of reduce-scatters that may be held at a time.
        forward_prefetch VARCHAR -  Units that its forward gathers ahead, by explicit request, one a line.
        backward_prefetch VARCHAR - Units that its backward gathers ahead, by explicit request, one a line.
        """,
    ),
    table_of(
        "stream",
        "rank, device, context, stream",
        "One row a CUDA stream that the source describes.",
        """
        device           INTEGER -  Device ordinal.
        context          BIGINT  -  CUDA context id.
        stream           BIGINT  -  Stream id.
        priority         BIGINT  -  Priority; lower runs first, 0 is the default.
        is_default       BIGINT  -  1 for the context's null stream.
        """,
    ),
    table_of(
        "environment",
        "rank, name",
        "Allow-listed settings known to matter to timing; nothing else of the environment is kept.",
        """
        name             VARCHAR -  Variable.
        value            VARCHAR -  Value.
        """,
    ),
    table_of(
        "source_quality",
        "rank, check_name",
        "One row a thing the reader noticed about its source.",
        """
        check_name       VARCHAR -  Stable name of the check.
        status           VARCHAR -  ok, info, warn or fail.
        detail           VARCHAR -  What was seen, with counts.
        forbids          VARCHAR -  What cannot be said because of it; NULL when nothing.
        """,
    ),
    table_of(
        "name",
        "rank, name_id",
        "Each distinct string of a rank once; name_id is a 63-bit hash, equal across ranks.",
        """
        name_id          BIGINT  -  Hash of the string.
        name             VARCHAR -  The string.
        """,
    ),
)

TABLES: dict[str, Table] = {table.name: table for table in _TABLES}
