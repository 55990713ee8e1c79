"""Column-wise helpers of the Nsight Systems mapping: names, codes and ids of whole columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from gapscope.ingest.base import TIME_LIMIT_NS, Sink
from gapscope.ingest.literals import no, none, number, string
from gapscope.ingest.nsys_meta import ID_MASK
from gapscope.ingest.nsys_tables import Kind, TableSource, texts_of

if TYPE_CHECKING:
    import pyarrow as pa

NVTX = "NVTX_EVENTS"
NVTX_DOMAIN = 75

# 'None' of unsigned 32-bit id columns; all ones of 64-bit ones reads as -1.
NO_ID = (0xFFFFFFFF, -1)

# Event sync ids start at 1; event queries carry 0.
NO_SYNC_ID = (*NO_ID, 0)

COPY_KINDS = (
    None, "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP",
    "UVM HtoD", "UVM DtoH", "UVM DtoD",
)  # fmt: skip

MEMORY_KINDS = (
    "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static",
)  # fmt: skip

CODE_NONE = 15

_API_VERSION = re.compile(r"_v\d{4,}$")


class Names:
    """name_ids of StringIds references; only referenced strings are ever looked up."""

    def __init__(
        self,
        source: TableSource,
        sink: Sink,
        unknown: str | None,
        transform: Callable[[str], str] = str,
    ) -> None:
        self.unresolved = 0
        self._source = source
        self._sink = sink
        self._unknown = unknown
        self._transform = transform
        self._known: dict[int, int | None] = {}
        self.texts: dict[int, str] = {}

    def ids(self, references: pa.Array) -> pa.Array:
        """name_id column for a column of StringIds references."""
        import pyarrow as pa
        import pyarrow.compute as pc

        encoded = references.dictionary_encode()
        keys = encoded.dictionary.to_pylist()
        self._learn([key for key in keys if key not in self._known])
        mapped = pa.array([self._known[key] for key in keys], pa.int64())
        result = mapped.take(encoded.indices)
        if result.null_count:
            self.unresolved += result.null_count
            if self._unknown is not None:
                result = pc.fill_null(result, number(self._sink.intern(self._unknown)))
        return result

    def _learn(self, keys: list[int]) -> None:
        if not keys:
            return
        found = self._source.strings(keys)
        for key in keys:
            text = found.get(key)
            if text is None:
                self._known[key] = None
                continue
            self.texts[key] = text = self._transform(text)
            self._known[key] = self._sink.intern(text)


class DomainNames:
    """NVTX domain names; ids are per process, and the default domain has none."""

    def __init__(self, source: TableSource) -> None:
        self._names: dict[tuple[int, int], str] = {}
        if not {"eventType", "domainId"} <= source.columns(NVTX):
            return
        columns = int_columns("globalTid domainId textId") | {"text": "text"}
        for batch in source.batches(NVTX, columns, ("eventType", NVTX_DOMAIN)):
            process, _ = split_thread(batch["globalTid"])
            texts = texts_of(batch["text"])
            references = batch["textId"].to_pylist()
            wanted = [key for key in references if key is not None]
            strings = source.strings(wanted) if wanted else {}
            for owner, domain, text, reference in zip(
                process.to_pylist(),
                batch["domainId"].to_pylist(),
                texts,
                references,
                strict=True,
            ):
                name = text if text is not None else strings.get(reference)
                if domain is not None and name is not None:
                    self._names[owner if owner is not None else -1, domain] = name

    def names(self, process: pa.Array, domain: pa.Array) -> pa.Array:
        """Domain name column for process and domain id columns."""
        import pyarrow.compute as pc

        owners = distinct(process)
        result = None
        domain = pc.fill_null(domain, number(0))
        for owner in owners or [-1]:
            found = mapped(domain, partial(self._name, owner))
            here = pc.equal(process, number(owner))
            result = found if result is None else pc.if_else(here, found, result)
        return result

    def _name(self, owner: int, domain: int) -> str:
        if domain == 0:
            return "default"
        return self._names.get((owner, domain)) or f"domain {domain}"


def int_columns(names: str) -> dict[str, Kind]:
    """Column kinds of space-separated integer columns."""
    return dict.fromkeys(names.split(), "int")


def mapped(array: pa.Array, function: Callable[[int], Any], kind: str = "text") -> pa.Array:
    """`function` of each value, called once per distinct value; NULL stays NULL."""
    import pyarrow as pa

    encoded = array.dictionary_encode()
    values = [function(value) for value in encoded.dictionary.to_pylist()]
    type_ = pa.int64() if kind == "int" else pa.string()
    return pa.array(values, type_).take(encoded.indices)


def distinct(array: pa.Array) -> list[int]:
    """Distinct values, NULL left out."""
    return [value for value in array.unique().to_pylist() if value is not None]


def with_sane_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with times that no capture can hold as NULL."""
    import pyarrow.compute as pc

    for name in ("start", "end", "timestamp"):
        if name not in batch.schema.names:
            continue
        ends = pc.min_max(batch[name]).as_py()
        if ends["min"] is None or (ends["min"] >= -TIME_LIMIT_NS and ends["max"] <= TIME_LIMIT_NS):
            continue
        sane = pc.and_(
            pc.greater_equal(batch[name], number(-TIME_LIMIT_NS)),
            pc.less_equal(batch[name], number(TIME_LIMIT_NS)),
        )
        index = batch.schema.get_field_index(name)
        times = pc.if_else(sane, batch[name], none())
        batch = batch.set_column(index, name, times)
    return batch


def count_true(mask: pa.Array) -> int:
    """How many values of a mask are true."""
    return int(mask.true_count)


def filtered(columns: Mapping[str, pa.Array], mask: pa.Array) -> dict[str, pa.Array]:
    """Columns filtered by one mask."""
    return {name: column.filter(mask) for name, column in columns.items()}


def without_none(array: pa.Array, none_values: tuple[int, ...] = NO_ID) -> pa.Array:
    """An id column with its 'none' values as NULL."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_none = pc.is_in(array, value_set=pa.array(none_values, pa.int64()))
    return pc.if_else(is_none, none(), array) if is_none.true_count else array


# What PyTorch's emit_nvtx appends to a range: autograd sequence number and number of the op.
_EMIT_NVTX = r"^(?s:(?P<label>.+?))(?:, seq = (?P<seq>[0-9]{1,18}))?, op_id = (?P<op>[0-9]{1,18})$"


def split_op_ids(texts: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Range texts without what emit_nvtx appends, the sequence numbers and the op ids.

    They number every op of a run, so that each range would have a name of its own.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.extract_regex(texts, _EMIT_NVTX)
    matched = pc.fill_null(found.is_valid(), no())
    labels = pc.if_else(matched, pc.struct_field(found, "label"), texts)
    numbers = []
    for field in ("seq", "op"):
        digits = pc.struct_field(found, field)
        present = pc.fill_null(pc.not_equal(digits, string("")), no())
        numbers.append(pc.if_else(present, digits, none()).cast(pa.int64()))
    return labels, numbers[0], numbers[1]


def split_thread(global_tid: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Process (globalPid) and thread id of a globalTid column."""
    import pyarrow.compute as pc

    return (
        pc.bit_wise_and(global_tid, number(~ID_MASK)),
        pc.bit_wise_and(global_tid, number(ID_MASK)),
    )


def enum_code(array: pa.Array) -> pa.Array:
    """A small enumeration value; CODE_NONE where it is missing or out of range."""
    import pyarrow.compute as pc

    fits = pc.and_(pc.greater_equal(array, number(0)), pc.less(array, number(CODE_NONE)))
    return pc.fill_null(pc.if_else(fits, array, none()), number(CODE_NONE))


def copy_kind(code: int) -> str | None:
    """Label of a copy kind code."""
    return COPY_KINDS[code] if code < len(COPY_KINDS) else None


def memory_kind(code: int) -> str | None:
    """Label of a memory kind code."""
    return MEMORY_KINDS[code].lower() if code < len(MEMORY_KINDS) else None


def memcpy_name(combined: int) -> str:
    """`Memcpy HtoD (Pinned -> Device)` for kind * 256 + source * 16 + destination."""
    kind, src, dst = combined // 256, combined // 16 % 16, combined % 16
    label = f"Memcpy {copy_kind(kind) or 'Unknown'}"
    if src == dst == CODE_NONE:
        return label
    ends = [MEMORY_KINDS[end] if end < len(MEMORY_KINDS) else "Unknown" for end in (src, dst)]
    return f"{label} ({ends[0]} -> {ends[1]})"


def memset_name(code: int) -> str:
    """`Memset (Device)` for a memory kind code."""
    return f"Memset ({MEMORY_KINDS[code] if code < len(MEMORY_KINDS) else 'Unknown'})"


def graph_name(graph: int) -> str:
    """Name of a graph launch recorded as one; negative for an unknown graph."""
    return f"CUDA graph {graph}" if graph >= 0 else "CUDA graph"


def without_version(name: str) -> str:
    """`cudaLaunchKernel` for `cudaLaunchKernel_v7000`."""
    return _API_VERSION.sub("", name)


def api_domain(name: str | None) -> str | None:
    """Which API a function belongs to, by its prefix."""
    if name is None:
        return None
    if name.startswith("cuda"):
        return "runtime"
    return "driver" if name.startswith("cu") else None


def interned(sink: Sink, text: str | None) -> int | None:
    """`intern` that passes None."""
    return None if text is None else sink.intern(text)
