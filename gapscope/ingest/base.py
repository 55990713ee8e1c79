"""The seam between readers and the run: what a reader is given and what it hands back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Times beyond this (73 years from the clock's zero) are broken records: below it, the sum or the
# difference of any two times fits into 64 bits, so that no query can overflow on one.
TIME_LIMIT_NS = 2**61 - 1

# Ranks are 32-bit numbers in every launcher.
MAX_RANK = 2**31 - 1

# Environment variables that may enter a run: rank identity and settings known to change timing.
RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
WORLD_SIZE_VARIABLES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
ENVIRONMENT_ALLOW_LIST = frozenset(
    {
        *RANK_VARIABLES,
        *WORLD_SIZE_VARIABLES,
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_MODULE_LOADING",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
        "CUDA_SCALE_LAUNCH_QUEUES",
        "CUDA_VISIBLE_DEVICES",
        "NCCL_ALGO",
        "NCCL_BUFFSIZE",
        "NCCL_CTA_POLICY",
        "NCCL_LAUNCH_ORDER_IMPLICIT",
        "NCCL_MAX_CTAS",
        "NCCL_MAX_NCHANNELS",
        "NCCL_MIN_CTAS",
        "NCCL_MIN_NCHANNELS",
        "NCCL_NTHREADS",
        "NCCL_NVLS_ENABLE",
        "NCCL_P2P_DISABLE",
        "NCCL_PROTO",
        "NCCL_SHM_DISABLE",
        "OMP_NUM_THREADS",
        "PYTORCH_CUDA_ALLOC_CONF",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "TORCH_NCCL_AVOID_RECORD_STREAMS",
        "TORCH_NCCL_BLOCKING_WAIT",
        "TORCH_NCCL_CUDA_EVENT_CACHE",
        "TORCH_NCCL_ENABLE_TIMING",
        "TORCH_NCCL_HIGH_PRIORITY",
    }
)


@dataclass
class ProcessInfo:
    """One captured process, as far as the source describes it. Unknown stays None."""

    process_id: int | None
    hostname: str | None = None
    rank: int | None = None
    rank_source: str | None = None
    world_size: int | None = None
    tool_version: str | None = None
    cuda_driver: str | None = None
    cuda_runtime: str | None = None
    nccl_version: str | None = None
    clock_base_ns: int | None = None
    # Whose clock its anchors of kind rank0 read: equal in processes that exchanged with one rank 0.
    clock_reference: str | None = None


@dataclass
class DeviceInfo:
    """One device, keyed by the ordinal that gpu_op.device carries (per process when stated)."""

    device: int
    process_id: int | None = None
    uuid: str | None = None
    name: str | None = None


@dataclass
class SourceInfo:
    """What a reader learned about its file beside the rows."""

    format: str
    processes: list[ProcessInfo] = field(default_factory=list)
    devices: list[DeviceInfo] = field(default_factory=list)


class Sink(Protocol):
    """Where a reader puts its rows; implemented by `ingest.writer.StagingSink`."""

    def write(self, table: str, columns: Mapping[str, Any]) -> None:
        """Append rows: equal-length lists, numpy or Arrow arrays by column name.

        Missing columns are NULL. `op_id`, `call_id`, `wait_id`, `range_id`, `collective_id` and
        `diagnostic_id` are numbered by the sink when they are not given.
        """

    def intern(self, text: str) -> int:
        """The name_id of a string; the string enters the `name` table."""

    def intern_many(self, texts: Sequence[str | None]) -> list[int | None]:
        """`intern` for a sequence; None stays None."""

    def quality(
        self, check_name: str, status: str, detail: str, forbids: str | None = None
    ) -> None:
        """Add a row to `source_quality`."""

    def scratch(self) -> Path:
        """An existing directory for temporary files; it goes away with the unfinished run."""

    def progress(self, done_bytes: int, total_bytes: int) -> None:
        """Tell the progress bar how much of the input is consumed."""


class Reader(Protocol):
    """Turns one input into canonical rows. One instance per input."""

    format: str

    @staticmethod
    def probe(path: Path) -> bool:
        """Whether the path looks like this format; reads at most a few KiB, raises nothing."""

    def read(self, path: Path, sink: Sink) -> SourceInfo:
        """Read the whole input. Raises GapscopeError when nothing of it can be used."""
