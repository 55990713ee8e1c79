"""Which rank a capture is: stated, declared or provisional, never guessed from a file name."""

from __future__ import annotations

import itertools
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from gapscope.errors import GapscopeError
from gapscope.ingest.base import MAX_RANK, DeviceInfo, ProcessInfo
from gapscope.ingest.resume import link
from gapscope.ingest.stage import Partition, Staged
from gapscope.ingest.writer import NUMBERED, StagingSink
from gapscope.schema.catalog import PARQUET_OPTIONS
from gapscope.schema.tables import TABLES

_RANK_IN_NAME = re.compile(r"rank[-_.]?([0-9]{1,10})(?![0-9])", re.IGNORECASE)

# Tables whose rows belong to a device; all others belong to a process.
_DEVICE_TABLES = frozenset({"gpu_op", "event_record", "stream_wait", "host_sync", "stream"})


@dataclass(frozen=True)
class RankOptions:
    """What the user said about ranks: take them from names, or a declared mapping by label."""

    from_name: bool
    declared: dict[str, int]


@dataclass
class Placement:
    """One partition of one source and the rank that it gets."""

    source: int
    partition: Partition
    is_primary: bool
    rank: int
    rank_source: str


def assign(staged: list[Staged], options: RankOptions) -> list[Placement]:
    """Give every partition a rank. Two that claim one rank are an error, unless appended."""
    for label, rank in options.declared.items():
        if not 0 <= rank <= MAX_RANK:
            raise GapscopeError(
                "usage", f"`--rank {label}={rank}`: no such rank", f"ranks are 0 to {MAX_RANK}"
            )
    placements: list[Placement] = []
    unknown: list[tuple[int, Partition, bool]] = []
    unused = set(options.declared)
    for number, one in enumerate(staged):
        for position, partition in enumerate(one.partitions):
            is_primary = position == 0
            claim = _claim(one, partition, is_primary, options, unused)
            if claim is None:
                unknown.append((number, partition, is_primary))
            else:
                placements.append(Placement(number, partition, is_primary, *claim))
    if unused:
        raise GapscopeError(
            "unknown-file",
            f"`--rank {min(unused)}=...` names no capture",
            f"captures: {', '.join(one.found.label for one in staged[:5])}",
        )
    _check_duplicates(placements, staged)
    taken = {placement.rank for placement in placements}
    free = (rank for rank in range(10**9) if rank not in taken)
    for number, partition, is_primary in unknown:
        placements.append(Placement(number, partition, is_primary, next(free), "provisional"))
    return placements


def place(
    placements: list[Placement],
    staged: list[Staged],
    work: Path,
) -> dict[int, dict[str, int]]:
    """Put staged Parquet into `data/<table>/rank=N/`; returns rows by rank and table."""
    rows: dict[int, dict[str, int]] = {}
    # Readings of several clocks would say that two rank 0 had one.
    left_out = {"clock_anchor": "kind = 'rank0'"} if len(clock_references(staged)) > 1 else {}
    by_rank: dict[int, list[Placement]] = {}
    for placement in placements:
        by_rank.setdefault(placement.rank, []).append(placement)
    empty = work / "extra" / "empty"
    _write_empty(empty)
    for rank in sorted(by_rank):
        parts = by_rank[rank]
        extra = work / "extra" / str(rank)
        own = _write_extra(extra, parts, staged)
        rows[rank] = {}
        for table in TABLES:
            target = work / "data" / table / f"rank={rank}"
            target.mkdir(parents=True)
            file = target / "data.parquet"
            rows[rank][table] = _place_table(table, parts, staged, extra, file, left_out.get(table))
            if not rows[rank][table]:
                rows[rank][table] = own[table]
                if not file.exists():
                    link(empty / f"{table}.parquet", file)
    shutil.rmtree(work / "extra", ignore_errors=True)
    return rows


def clock_references(staged: list[Staged]) -> set[str]:
    """Whose clocks the captures read: of one job, that of one rank 0."""
    processes = (process for one in staged for process in one.info.processes)
    return {one.clock_reference for one in processes if one.clock_reference is not None}


def _write_empty(directory: Path) -> None:
    """A file without rows of each table: one for all ranks that lack them."""
    import pyarrow.parquet as pq

    directory.mkdir(parents=True)
    for name, table in TABLES.items():
        pq.write_table(table.arrow_schema().empty_table(), directory / f"{name}.parquet")


def _claim(
    one: Staged, partition: Partition, is_primary: bool, options: RankOptions, unused: set[str]
) -> tuple[int, str] | None:
    """The rank that a partition states, and where it says so."""
    if is_primary:
        for key in (one.found.label, one.found.path.name):
            if key in options.declared:
                unused.discard(key)
                return options.declared[key], "declared"
    # A stated rank is one process on one device: a second device of that process is not it.
    same_process = [p for p in one.partitions if p.process_id == partition.process_id]
    info = _process(one, partition)
    if info is not None and info.rank is not None and same_process[0] is partition:
        return info.rank, info.rank_source or "stated"
    if is_primary and options.from_name:
        named = _RANK_IN_NAME.findall(one.found.path.name)
        if named and int(named[-1]) <= MAX_RANK:
            return int(named[-1]), "file name"
    return None


def _check_duplicates(placements: list[Placement], staged: list[Staged]) -> None:
    claimed: dict[int, list[Placement]] = {}
    for placement in placements:
        claimed.setdefault(placement.rank, []).append(placement)
    conflicts = []
    sampled = False
    for rank, same in sorted(claimed.items()):
        if len(same) > 1 and not _appendable(same, staged):
            labels = [f"`{staged[p.source].found.label}`" for p in same]
            together = "both" if len(labels) == 2 else "all"
            listed = f"{', '.join(labels[:-1])} and {labels[-1]}"
            conflicts.append(f"{listed} {together} claim rank {rank}")
            sampled = sampled or any(staged[p.source].rows.get("metric_sample") for p in same)
    if conflicts:
        hint = "leave one of each out, or say which is which: `--rank FILE=N`, once a file"
        if sampled:
            hint += "; a capture of GPU metrics: `--metrics FILE`"
        raise GapscopeError("duplicate-rank", "; ".join(conflicts), hint)


def _appendable(same: list[Placement], staged: list[Staged]) -> bool:
    """Kineto files of one process that do not overlap in time are one capture in pieces."""
    if len({p.source for p in same}) < len(same):
        return False
    infos = [_process(staged[p.source], p.partition) for p in same]
    if any(staged[p.source].info.format != "kineto" for p in same):
        return False
    keys = {(i.process_id, i.hostname, i.clock_base_ns) for i in infos if i is not None}
    if len(keys) != 1 or None in infos or infos[0] is None or infos[0].process_id is None:
        return False
    spans = sorted(
        (p.partition.first_ns, p.partition.last_ns)
        for p in same
        if p.partition.first_ns is not None and p.partition.last_ns is not None
    )
    if len(spans) < len(same):
        return False
    return all(left[1] <= right[0] for left, right in itertools.pairwise(spans))


def _process(one: Staged, partition: Partition) -> ProcessInfo | None:
    processes = one.info.processes
    for process in processes:
        if process.process_id == partition.process_id:
            return process
    return processes[0] if len(processes) == 1 else None


def _device(one: Staged, partition: Partition) -> DeviceInfo | None:
    matching = [d for d in one.info.devices if d.device == partition.device]
    for device in matching:
        if device.process_id == partition.process_id:
            return device
    return matching[0] if matching else None


def _write_extra(directory: Path, parts: list[Placement], staged: list[Staged]) -> dict[str, int]:
    """The `rank` row, and quality rows that only the whole ingest can know; how many by table."""
    sink = StagingSink(directory)
    first = parts[0]
    one = staged[first.source]
    process = _process(one, first.partition)
    device = _device(one, first.partition)
    process_id = first.partition.process_id
    if process_id is None and process is not None:
        process_id = process.process_id
    row = {
        "hostname": process.hostname if process else None,
        "process_id": process_id,
        "device": first.partition.device,
        "device_uuid": device.uuid if device else None,
        "device_name": device.name if device else None,
        "source_format": one.info.format,
        "source_path": ", ".join(staged[p.source].found.label for p in parts),
        "source_bytes": sum(staged[p.source].bytes for p in parts),
        "source_digest": one.digest,
        "tool_version": process.tool_version if process else None,
        "cuda_driver": process.cuda_driver if process else None,
        "cuda_runtime": process.cuda_runtime if process else None,
        "nccl_version": process.nccl_version if process else None,
        "world_size": process.world_size if process else None,
        "rank_source": first.rank_source,
        "clock_base_ns": process.clock_base_ns if process else None,
    }
    sink.write("rank", {name: [value] for name, value in row.items()})
    if len(parts) > 1:
        sink.quality("appended", "info", f"{len(parts)} files of one process, one after another")
    if len(one.partitions) > 1:
        sink.quality(
            "several_in_one_file",
            "info",
            f"`{one.found.label}` holds {len(one.partitions)} process-device pairs; "
            f"this is process {first.partition.process_id} on device {first.partition.device}",
        )
    if first.rank_source == "provisional" and _RANK_IN_NAME.search(one.found.path.name):
        sink.quality(
            "rank_in_name",
            "info",
            f"the name `{one.found.path.name}` suggests a rank; confirm with `--rank-from-name`",
        )
    sink.close()
    return sink.rows


def _place_table(
    table: str,
    parts: list[Placement],
    staged: list[Staged],
    extra: Path,
    file: Path,
    left_out: str | None,
) -> int:
    """Write one table of one rank and return its rows. One whole source is only linked.

    Without rows of a source the file is that of `extra`, or there is none.
    """
    import pyarrow.parquet as pq

    own = extra / f"{table}.parquet"
    sources = [(part, staged[part.source].directory / f"{table}.parquet") for part in parts]
    sources = [(part, source) for part, source in sources if source.exists()]
    one = staged[parts[0].source]
    is_whole = len(one.partitions) == 1 and left_out is None
    if len(sources) == 1 and not own.exists() and is_whole:
        link(sources[0][1], file)
        return staged[sources[0][0].source].rows[table]
    if sources:
        _combine(table, sources, own if own.exists() else None, staged, file, left_out)
        return int(pq.read_metadata(file).num_rows)
    if own.exists():
        own.rename(file)
    return 0


def _combine(
    table: str,
    sources: list[tuple[Placement, Path]],
    own: Path | None,
    staged: list[Staged],
    file: Path,
    left_out: str | None,
) -> None:
    """Filter each source to its partition, renumber what is appended, write one file."""
    import duckdb

    with duckdb.connect() as con:
        queries = []
        offset = 0
        op_offset = 0
        for part, path in sources:
            replaced = []
            numbered = NUMBERED.get(table)
            if numbered is not None and offset:
                replaced.append(f"{numbered} + {offset} AS {numbered}")
            if table == "collective" and op_offset:
                replaced.append(f"op_id + {op_offset} AS op_id")
            replace = f" REPLACE ({', '.join(replaced)})" if replaced else ""
            where = _membership(table, part, staged[part.source])
            if left_out is not None:
                where += f" AND NOT ({left_out})"
            queries.append(
                f"SELECT *{replace} FROM read_parquet({_quoted(path)}) AS t WHERE {where}"
            )
            offset += staged[part.source].rows.get(table, 0)
            op_offset += staged[part.source].rows.get("gpu_op", 0)
        if own is not None:
            queries.append(f"SELECT * FROM read_parquet({_quoted(own)})")
        union = " UNION ALL ".join(queries)
        if table == "name":
            union = f"SELECT DISTINCT * FROM ({union})"
        if table == "source_quality":
            # Appended files may each carry a check of one name: one row a check.
            union = (
                "SELECT check_name, max_by(status, list_position(['ok', 'info', 'warn', 'fail'], "
                "status)) AS status, string_agg(detail, '; ') AS detail, "
                f"string_agg(DISTINCT forbids, '; ') AS forbids FROM ({union}) GROUP BY check_name"
            )
        con.execute(f"COPY ({union}) TO {_quoted(file)} ({PARQUET_OPTIONS})")


def _membership(table: str, part: Placement, one: Staged) -> str:
    """SQL condition: the rows of a source that belong to one partition."""
    if len(one.partitions) == 1 or table in ("name", "source_quality", "rank"):
        return "true"
    columns = {column.name for column in TABLES[table].columns}
    process = _literal(part.partition.process_id)
    device = _literal(part.partition.device)
    conditions = []
    if table == "metric_sample":
        return _sampled(part, one)
    if "process_id" in columns:
        unowned = " OR process_id IS NULL" if part.is_primary else ""
        conditions.append(f"(process_id IS NOT DISTINCT FROM {process}{unowned})")
    if table in _DEVICE_TABLES:
        unowned = " OR device IS NULL" if part.is_primary else ""
        conditions.append(f"(device IS NOT DISTINCT FROM {device}{unowned})")
    siblings = [p for p in one.partitions if p.process_id == part.partition.process_id]
    if table == "api_call" and len(siblings) > 1:
        # One process drives several devices: a call goes with the op that it launched, and calls
        # that launched nothing with the process's busiest device.
        ops = f"read_parquet({_quoted(one.directory / 'gpu_op.parquet')})"
        launched = (
            f"SELECT correlation_id FROM {ops} WHERE process_id IS NOT DISTINCT FROM {process} "
            "AND correlation_id IS NOT NULL"
        )
        mine = f"correlation_id IN ({launched} AND device IS NOT DISTINCT FROM {device})"
        if siblings[0] is part.partition:
            mine += f" OR coalesce(correlation_id NOT IN ({launched}), true)"
        conditions.append(f"({mine})")
    return " AND ".join(conditions) or "true"


def _sampled(part: Placement, one: Staged) -> str:
    """SQL condition: metric samples of the partition's device; of no partition's, the primary's.

    A rank in another capture may have run on a device that is of no partition here.
    """
    uuids = {p: device.uuid for p in one.partitions if (device := _device(one, p)) and device.uuid}
    own = uuids.get(part.partition)
    # Where processes number devices differently an ordinal may be that of another one's device.
    listed = ", ".join(_quoted(uuid) for uuid in sorted(set(uuids.values())))
    known = f"coalesce(device_uuid IN ({listed}), false)" if listed else "false"
    numbers = ", ".join(_literal(p.device) for p in one.partitions if p.device is not None)
    seen = f"coalesce(device IN ({numbers}), false)" if numbers else "false"
    condition = f"(device IS NOT DISTINCT FROM {_literal(part.partition.device)} AND NOT {known})"
    if own is not None:
        condition += f" OR coalesce(device_uuid = {_quoted(own)}, false)"
    if part.is_primary:
        condition += f" OR NOT ({known} OR {seen})"
    return f"({condition})"


def _literal(value: int | None) -> str:
    return "NULL" if value is None else str(value)


def _quoted(path: Path | str) -> str:
    return "'" + str(path).replace("'", "''") + "'"
