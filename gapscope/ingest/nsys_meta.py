"""Small metadata tables of an Nsight Systems export: who, where, which clock, which devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gapscope.ingest.base import (
    RANK_VARIABLES,
    WORLD_SIZE_VARIABLES,
    DeviceInfo,
    ProcessInfo,
    Sink,
)
from gapscope.ingest.nsys_privacy import (
    Environment,
    allowed_settings,
    capture_environment,
    clean_message,
    number_setting,
    secrets_of,
)
from gapscope.ingest.nsys_tables import Kind, TableSource, texts_of

if TYPE_CHECKING:
    import pyarrow as pa

# globalPid and globalTid: hardware and VM ids, then 24 bits process id, then 24 bits thread id.
PID_SHIFT = 24
ID_MASK = (1 << 24) - 1
# Priorities are signed, exports store them as unsigned 32-bit numbers.
UNSIGNED = 1 << 32
STREAM_FLAG_NULL = 3
# Variables that name one process; they say nothing once a capture holds several.
PER_PROCESS = frozenset({*RANK_VARIABLES, *WORLD_SIZE_VARIABLES, "LOCAL_RANK"})

SEVERITY = {0: "info", 1: "info", 2: "warning", 3: "error", 4: "info"}
COMPONENT = {1: "injection", 2: "daemon", 3: "analysis"}


@dataclass
class Observed:
    """What the bulk tables turned out to contain."""

    device_processes: set[int] = field(default_factory=set)
    api_processes: set[int] = field(default_factory=set)
    range_processes: set[int] = field(default_factory=set)
    # (process, context) -> device, from device ops.
    context_device: dict[tuple[int | None, int | None], int | None] = field(default_factory=dict)
    devices: set[tuple[int | None, int]] = field(default_factory=set)

    def processes(self) -> list[int]:
        """Captured processes, those with device ops if there are any."""
        return sorted(self.device_processes or self.api_processes or self.range_processes)


@dataclass
class Metadata:
    """The capture's own description, read before the bulk tables."""

    environments: dict[int, Environment]
    secrets: frozenset[str]
    hostname: str | None
    cuda_driver: str | None
    tool_version: str | None
    clock_base_ns: int | None
    system_clock_ns: int | None
    time_shift: str | None


def rows(source: TableSource, table: str, columns: Mapping[str, Kind]) -> list[tuple[Any, ...]]:
    """All rows of a small table; missing columns are None."""
    result: list[tuple[Any, ...]] = []
    for batch in source.batches(table, columns):
        result.extend(zip(*(_values(column) for column in batch.columns), strict=True))
    return result


def read_metadata(source: TableSource) -> Metadata:
    """Read what describes the capture as a whole."""
    capture = rows(source, "META_DATA_CAPTURE", {"name": "text", "value": "text"})
    export = dict(rows(source, "META_DATA_EXPORT", {"name": "text", "value": "text"}))
    system = dict(rows(source, "TARGET_INFO_SYSTEM_ENV", {"name": "text", "value": "text"}))
    start = rows(
        source,
        "TARGET_INFO_SESSION_START_TIME",
        {"utcEpochNs": "int", "systemClockNs": "int"},
    )
    utc, system_clock = start[0] if start else (None, None)
    base, shift = _clock_base(utc, export)
    environments = capture_environment(capture)
    return Metadata(
        environments=environments,
        secrets=secrets_of(environments, system.get("DeviceEnvironment") or ""),
        hostname=_label(system.get("Hostname")),
        cuda_driver=_label(system.get("CudaDriverVersion")),
        tool_version=_label(export.get("EXPORT_PRODUCT_VERSION")),
        clock_base_ns=base,
        system_clock_ns=system_clock,
        time_shift=shift,
    )


def write_clock(meta: Metadata, sink: Sink) -> None:
    """Clock anchors: both clocks at the session start, which is trace time 0."""
    if meta.time_shift is not None:
        sink.quality("time_shift", "info", meta.time_shift)
    if meta.clock_base_ns is None:
        sink.quality(
            "missing_clock",
            "info",
            "no session start time: trace time 0 has no date",
            "alignment of ranks by session start",
        )
        return
    anchors = [("unix", meta.clock_base_ns)]
    if meta.system_clock_ns is not None and meta.time_shift is None:
        anchors.append(("system_monotonic", meta.system_clock_ns))
    sink.write(
        "clock_anchor",
        {
            "ts_ns": [0] * len(anchors),
            "kind": [kind for kind, _ in anchors],
            "value_ns": [value for _, value in anchors],
        },
    )


def processes(meta: Metadata, observed: Observed, sink: Sink) -> list[ProcessInfo]:
    """Captured processes with their rank, and the allow-listed settings."""
    ids: list[int | None] = [*observed.processes()] or [None]
    settings, dropped = allowed_settings(meta.environments)
    rank = number_setting(settings, RANK_VARIABLES)
    world = number_setting(settings, WORLD_SIZE_VARIABLES)
    if len(ids) > 1:
        # The environment is the launched process's (torchrun, a shell), not its children's.
        rank = world = None
        settings = {name: text for name, text in settings.items() if name not in PER_PROCESS}
        sink.quality(
            "rank_identity",
            "warn",
            f"{len(ids)} processes with CUDA activity in one capture: its environment belongs to "
            "the launcher, so it names no rank",
        )
    elif rank is None:
        sink.quality("rank_identity", "info", "the capture environment names no rank")
    if dropped:
        sink.quality(
            "environment",
            "info",
            f"settings left out because of their value: {', '.join(dropped)}",
        )
    sink.write("environment", {"name": list(settings), "value": list(settings.values())})
    return [
        ProcessInfo(
            process_id=process_id,
            hostname=meta.hostname,
            rank=rank[0] if rank else None,
            rank_source=rank[1] if rank else None,
            world_size=world[0] if world else None,
            tool_version=meta.tool_version,
            cuda_driver=meta.cuda_driver,
            clock_base_ns=meta.clock_base_ns,
        )
        for process_id in ids
    ]


def devices(source: TableSource, observed: Observed) -> list[DeviceInfo]:
    """Devices by the ordinal that each process sees."""
    boards = {
        key: (name, uuid)
        for key, name, uuid in rows(
            source, "TARGET_INFO_GPU", {"id": "int", "name": "text", "uuid": "text"}
        )
    }
    ordinals = rows(
        source,
        "TARGET_INFO_CUDA_DEVICE",
        {"gpuId": "int", "cudaId": "int", "pid": "int", "uuid": "text"},
    )
    by_pid = {(process >> PID_SHIFT) & ID_MASK: process for process in observed.processes()}
    result: dict[tuple[int | None, int], DeviceInfo] = {}
    for board, ordinal, pid, uuid in ordinals:
        process = by_pid.get(pid)
        if ordinal is None or process is None:
            continue
        name, board_uuid = boards.get(board, (None, None))
        result[process, ordinal] = DeviceInfo(
            ordinal, process, _label(uuid or board_uuid), _label(name)
        )
    for process, ordinal in sorted(observed.devices, key=lambda key: (key[0] or 0, key[1])):
        if (process, ordinal) not in result:
            # Without the ordinal table, board ids are ordinals unless devices were hidden.
            name, uuid = boards.get(ordinal, (None, None)) if not ordinals else (None, None)
            result[process, ordinal] = DeviceInfo(ordinal, process, _label(uuid), _label(name))
    return list(result.values())


def write_streams(source: TableSource, observed: Observed, sink: Sink) -> None:
    """Streams with priority; their device comes from the context."""
    contexts = {
        (pid, context): (device, null_stream)
        for pid, context, device, null_stream in rows(
            source,
            "TARGET_INFO_CUDA_CONTEXT_INFO",
            {
                "processId": "int",
                "contextId": "int",
                "deviceId": "int",
                "nullStreamId": "int",
            },
        )
    }
    for (process, context), device in observed.context_device.items():
        pid = None if process is None else (process >> PID_SHIFT) & ID_MASK
        contexts.setdefault((pid, context), (device, None))
    columns: dict[str, list[int | None]] = {
        name: [] for name in ("device", "context", "stream", "priority", "is_default")
    }
    for pid, context, stream, priority, flag in rows(
        source,
        "TARGET_INFO_CUDA_STREAM",
        {
            "processId": "int",
            "contextId": "int",
            "streamId": "int",
            "priority": "int",
            "flag": "int",
        },
    ):
        device, null_stream = contexts.get((pid, context), (None, None))
        if priority is not None and priority >= UNSIGNED // 2:
            priority -= UNSIGNED
        is_default = stream == null_stream if null_stream is not None else flag == STREAM_FLAG_NULL
        values = (_int32(device), context, stream, priority, int(is_default))
        for column, value in zip(columns.values(), values, strict=True):
            column.append(value)
    sink.write("stream", columns)


def metric_devices(source: TableSource, sink: Sink) -> tuple[dict[int, int], dict[int, str]]:
    """Board id -> device ordinal and -> UUID for sampled metrics; without ordinals ids are used."""
    uuids = {
        board: label
        for board, uuid in rows(source, "TARGET_INFO_GPU", {"id": "int", "uuid": "text"})
        if board is not None and (label := _label(uuid)) is not None
    }
    pairs = {
        (board, ordinal)
        for board, ordinal in rows(
            source, "TARGET_INFO_CUDA_DEVICE", {"gpuId": "int", "cudaId": "int"}
        )
        if board is not None and ordinal is not None
    }
    ordinals = dict(pairs)
    if len(ordinals) == len(pairs) and len(set(ordinals.values())) == len(pairs):
        return ordinals, uuids
    is_told_apart = all(board in uuids for board, _ in pairs)
    sink.quality(
        "metric_device",
        "info" if is_told_apart else "warn",
        "processes number the devices differently: metric_sample.device is the board id",
        None if is_told_apart else "joining metric samples to device ops",
    )
    return {}, uuids


def write_diagnostics(source: TableSource, meta: Metadata, sink: Sink) -> list[tuple[str, str]]:
    """Messages of the tool, cleaned; returns (severity, text)."""
    messages = rows(
        source,
        "DIAGNOSTIC_EVENT",
        {
            "timestamp": "int",
            "timestampType": "int",
            "source": "int",
            "severity": "int",
            "text": "text",
        },
    )
    texts = [clean_message(message[4] or "", meta.secrets) for message in messages]
    severities = [SEVERITY.get(message[3], "info") for message in messages]
    sink.write(
        "diagnostic",
        {
            # Type 2 is the host tool's clock, which is not the trace clock.
            "ts_ns": [ts if kind in (None, 1) else None for ts, kind, *_ in messages],
            "severity": severities,
            "source": [COMPONENT.get(message[2]) for message in messages],
            "text": texts,
        },
    )
    return list(zip(severities, texts, strict=True))


def _clock_base(utc: int | None, export: Mapping[str, Any]) -> tuple[int | None, str | None]:
    """Unix time of trace time 0; an export may shift its times or make them absolute."""
    if utc is None:
        return None, None
    if export.get("EXPORT_PARAM_TIME_NORMALIZE") == "true":
        return 0, "exported with normalized times: trace time is Unix time"
    try:
        shift = int(export.get("EXPORT_CONFIG_TIME_SHIFT") or 0)
    except ValueError:
        shift = 0
    if shift:
        return (
            utc - shift,
            f"exported with times shifted by {shift} ns; trace time 0 is corrected",
        )
    return utc, None


def _label(text: str | None) -> str | None:
    """A short name from the export; anything with a path in it is not one."""
    if not text or len(text) > 128 or "/" in text or "\\" in text or "=" in text:
        return None
    return " ".join(text.split())


def _int32(value: int | None) -> int | None:
    return value if value is not None and 0 <= value < 2**31 else None


def _values(column: pa.Array) -> list[Any]:
    import pyarrow as pa

    return texts_of(column) if pa.types.is_string(column.type) else column.to_pylist()
