"""What a Kineto event looks like: the fields that are read, and how exact their times are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct, field

Int = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

_EMPTY = Raw(b"{}")
_ABSENT = Raw(b"")


class Event(Struct, gc=False):
    """One element of `traceEvents`. Times stay text: a double cannot hold them to the ns."""

    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    pid: Int | str | None = None
    tid: Int | str | None = None
    ts: Raw = _ABSENT
    dur: Raw = _ABSENT
    args: Raw = _EMPTY


class RangeArgs(Struct, gc=False):
    """Arguments of cpu_op, user_annotation and gpu_user_annotation events."""

    external_id: Int | None = field(name="External id", default=None)
    sequence_number: Int | None = field(name="Sequence number", default=None)


class FrameArgs(Struct, gc=False):
    """Arguments of a call of a Python function."""

    frame_id: Int | None = field(name="Python id", default=None)
    parent_id: Int | None = field(name="Python parent id", default=None)


class ApiArgs(Struct, gc=False):
    """Arguments of runtime and driver calls."""

    correlation: Int | None = None


class SyncArgs(Struct, gc=False):
    """Arguments of cuda_sync events; -1 stands for unknown."""

    correlation: Int | None = None
    device: Int32 | None = None
    context: Int | None = None
    stream: Int | None = None
    kind: str | None = field(name="cuda_sync_kind", default=None)
    record_stream: Int | None = field(name="wait_on_stream", default=None)
    record_correlation: Int | None = field(name="wait_on_cuda_event_record_corr_id", default=None)
    event_id: Int | None = field(name="wait_on_cuda_event_id", default=None)


class CollectiveArgs(Struct, gc=False):
    """What c10d says about a collective, on its kernel and on its record_param_comms op."""

    external_id: Int | None = field(name="External id", default=None)
    collective: str | None = field(name="Collective name", default=None)
    elements_in: Int | None = field(name="In msg nelems", default=None)
    elements_out: Int | None = field(name="Out msg nelems", default=None)
    group_size: Int | None = field(name="Group size", default=None)
    dtype: str | None = None
    group_name: str | None = field(name="Process Group Name", default=None)
    group_desc: str | None = field(name="Process Group Description", default=None)
    group_ranks: str | None = field(name="Process Group Ranks", default=None)
    seq: Int | None = field(name="Seq", default=None)
    source_rank: Int | None = field(name="Src Rank", default=None)
    destination_rank: Int | None = field(name="Dst Rank", default=None)


class DeviceArgs(CollectiveArgs, gc=False):
    """Arguments of kernel, gpu_memcpy and gpu_memset events."""

    device: Int32 | None = None
    context: Int | None = None
    stream: Int | None = None
    correlation: Int | None = None
    bytes: Int | None = None
    kind: str | None = None  # ROCm: HtoD, DtoD, ...
    queued: Int | float | None = None
    grid: list[Int] | None = None
    block: list[Int] | None = None
    graph_id: Int | None = field(name="graph id", default=None)
    graph_node_id: Int | None = field(name="graph node id", default=None)


_MEMBER_NAMES = {
    "distributed_info": "distributedInfo",
    "device_properties": "deviceProperties",
    "base_time_ns": "baseTimeNanoseconds",
    "trace_events": "traceEvents",
}


class ProcessGroup(Struct):
    """One entry of distributedInfo.pg_config."""

    pg_name: str | None = None
    pg_desc: str | None = None
    backend_config: str | None = None
    pg_size: Int | None = None
    ranks: list[Int] | str | None = None


class DistributedInfo(Struct):
    """The trace's distributedInfo member."""

    rank: Int | None = None
    world_size: Int | None = None
    nccl_version: str | Int | float | None = None
    pg_config: list[ProcessGroup] | None = None


class DeviceProperties(Struct):
    """One entry of the trace's deviceProperties member."""

    id: Int32 | None = None
    name: str | None = None
    uuid: str | None = None


class Metadata(Struct, rename=_MEMBER_NAMES):
    """The members of the trace object that are read; nothing else of it enters a run."""

    distributed_info: Raw = _EMPTY
    device_properties: Raw = _EMPTY
    base_time_ns: Raw = _ABSENT
    cuda_driver_version: Raw = _ABSENT
    cuda_runtime_version: Raw = _ABSENT
    hip_driver_version: Raw = _ABSENT
    hip_runtime_version: Raw = _ABSENT
    cupti_version: Raw = _ABSENT
    roctracer_version: Raw = _ABSENT
    rocprofiler_sdk_version: Raw = _ABSENT
    torch_version: Raw = _ABSENT
    pytorch_version: Raw = _ABSENT
    trace_events: Raw = _ABSENT  # only to notice a second list


_NUMBER = re.compile(rb'"?\s*([-+]?)(\d*)(?:\.(\d*))?(?:[eE]([-+]?\d{1,4}))?\s*"?')
_MAX_DIGITS = 400
_PADDING = (b"000", b"00", b"0", b"")
# Up to this many whole digits of microseconds the ns fit an int64 with room to add a duration.
_SAFE_DIGITS = 15
_SAFE_NS = 10 ** (_SAFE_DIGITS + 3)


def to_ns(raw: Raw | bytes) -> int:
    """Exact nanoseconds of a decimal number of microseconds (round half even below 1 ns).

    Raises ValueError for text that is no number and for times outside 64 bits.
    """
    text = bytes(raw)
    whole, _, fraction = text.partition(b".")
    if whole and len(fraction) <= 3 and len(whole) <= _SAFE_DIGITS:
        try:
            return int(whole + fraction + _PADDING[len(fraction)])
        except ValueError:
            pass  # an exponent, a quoted number or no number at all
    match = _NUMBER.fullmatch(text)
    if match is None or len(text) > _MAX_DIGITS or not (match[2] or match[3]):
        raise ValueError("not a time")
    sign, whole, fraction, exponent = match[1], match[2], match[3] or b"", int(match[4] or 0)
    digits = int(whole + fraction)
    power = exponent - len(fraction) + 3
    if digits == 0:
        return 0
    if power >= 0:
        if power > 40:
            raise ValueError("time out of range")
        value = digits * int(10**power)
    elif -power > _MAX_DIGITS * 2:
        value = 0
    else:
        unit = int(10**-power)
        value, rest = divmod(digits, unit)
        half = unit // 2
        if rest > half or (rest == half and value % 2):
            value += 1
    if sign == b"-":
        value = -value
    if not -(2**63) <= value < 2**63:
        raise ValueError("time out of range")
    return value


def to_ns_column(raws: Sequence[Raw]) -> list[int]:
    """`to_ns` of every element; one pass for the usual text, all of them again for any other."""
    texts = list(map(bytes, raws))
    if b"" in texts:
        raise ValueError("no time")
    try:
        values = [
            int(whole + fraction + _PADDING[len(fraction)])
            for whole, _, fraction in [text.partition(b".") for text in texts]
        ]
    except (ValueError, IndexError):
        return [to_ns(raw) for raw in raws]
    if values and (max(values) >= _SAFE_NS or min(values) <= -_SAFE_NS):
        return [to_ns(raw) for raw in raws]
    return values


_COLLECTIVES = {
    "allgather": "all_gather",
    "allgatherbase": "all_gather",
    "allgatherintotensor": "all_gather",
    "allgatherintotensorcoalesced": "all_gather",
    "allgathercoalesced": "all_gather",
    "allgatherv": "all_gather",
    "reducescatter": "reduce_scatter",
    "reducescatterbase": "reduce_scatter",
    "reducescattertensor": "reduce_scatter",
    "reducescattertensorcoalesced": "reduce_scatter",
    "reducescatterv": "reduce_scatter",
    "allreduce": "all_reduce",
    "allreducecoalesced": "all_reduce",
    "allreducesparse": "all_reduce",
    "alltoall": "all_to_all",
    "alltoallbase": "all_to_all",
    "alltoallv": "all_to_all",
    "alltoallsingle": "all_to_all",
    "broadcast": "broadcast",
    "broadcastoop": "broadcast",
    "reduce": "reduce",
    "reduceoop": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
    "send": "send",
    "recv": "recv",
}
# record_param_comms also marks these, which are no collectives.
NOT_COLLECTIVE = frozenset(
    {"wait", "init", "startcoalescing", "endcoalescing", "groupstart", "groupend"}
)


def _plain(name: str) -> str:
    return name.rpartition(":")[2].replace("_", "").lower()


def collective_type(name: str) -> str:
    """c10d's name of a collective in the canonical spelling; unknown names stay, in lower case."""
    return _COLLECTIVES.get(_plain(name), name.strip("_").lower())


def is_collective(name: str) -> bool:
    """Whether a record_param_comms name is a collective and not bookkeeping."""
    return _plain(name) not in NOT_COLLECTIVE


def decode_member(raw: Raw, type_: type[T]) -> T | None:
    """One metadata member, or None where it is absent or not what it should be."""
    try:
        return msgspec.json.decode(raw, type=type_, strict=False)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
