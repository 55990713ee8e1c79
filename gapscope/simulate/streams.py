"""The tracer's streams, written: a file a table, a batch a step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_TIMES = "start_ns:int64 end_ns:int64 "
_PLACE = "correlation:uint32 context:uint32 stream:uint32 "
_GRAPH = "graph_node:uint64 graph:uint32 "

# As tables.cc of the tracer has them; a test holds both together.
COLUMNS = {
    "kernel": f"{_TIMES} name:uint32 {_PLACE} {_GRAPH} grid_x:uint32 grid_y:uint16 grid_z:uint16 "
    "block_x:uint16 block_y:uint16 block_z:uint16 channel:uint16 device:uint8",
    "api": f"{_TIMES} correlation:uint32 thread:uint16 call:uint16",
    "memcpy": f"{_TIMES} bytes:uint64 {_PLACE} {_GRAPH} channel:uint16 device:uint8 "
    "src_device:uint8 dst_device:uint8 copy_kind:uint8 src_kind:uint8 dst_kind:uint8",
    "memset": f"{_TIMES} bytes:uint64 {_PLACE} {_GRAPH} channel:uint16 device:uint8 "
    "memory_kind:uint8",
    "event": f"{_PLACE} event:uint32 sync_id:uint64 device_ns:int64",
    "sync": f"{_TIMES} type:uint8 {_PLACE} event:uint32 sync_id:uint64",
    "range": f"{_TIMES} name:uint32 domain:uint32 thread:uint16 kind:uint8 op_id:int64 "
    "sequence:int64",
    "device": "device:uint32 name:uint32 uuid:uint32 multiprocessors:uint32 compute_major:uint32 "
    "compute_minor:uint32",
    "context": "context:uint32 device:uint32 null_stream:uint32",
    "stream": "context:uint32 stream:uint32 priority:int32 flag:uint32",
    "clock": "monotonic_ns:int64 realtime_ns:int64 uncertainty_ns:int64",
    "name": "id:uint32 text:string",
    "call": "id:uint16 domain:uint8 name:uint32 return_code:uint32",
    "thread": "id:uint16 tid:uint32",
}


def schema_of(table: str) -> pa.Schema:
    """The columns of a stream."""
    import pyarrow as pa

    pairs = (column.split(":") for column in COLUMNS[table].split())
    # No column is nullable: "none" is a value.
    return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in pairs])


class Stream:
    """One table of one process. A column that is not given is 0."""

    def __init__(self, directory: Path, table: str) -> None:
        import pyarrow as pa

        self.rows = 0
        self._schema = schema_of(table)
        self._file = pa.OSFile(str(directory / f"{table}.arrows"), "wb")
        self._writer = pa.ipc.new_stream(self._file, self._schema)

    def write(self, columns: Mapping[str, Any]) -> None:
        """Append a batch of equal columns."""
        import numpy as np
        import pyarrow as pa

        count = len(next(iter(columns.values())))
        if not count:
            return
        arrays = []
        for field in self._schema:
            values = columns.get(field.name)
            if values is None:
                values = np.zeros(count, field.type.to_pandas_dtype())
            arrays.append(pa.array(values, field.type))
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self.rows += count

    def close(self) -> None:
        """End the stream."""
        self._writer.close()
        self._file.close()


def write_stream(directory: Path, table: str, columns: Mapping[str, Any]) -> int:
    """A whole table at once; how many rows it has."""
    stream = Stream(directory, table)
    stream.write(columns)
    stream.close()
    return stream.rows
