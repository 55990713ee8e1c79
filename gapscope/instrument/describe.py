"""Who this process is, as torch knows it."""

from __future__ import annotations

import os
from typing import Any


def describe_process() -> dict[str, Any]:
    """Version, rank and meshes."""
    import torch
    from torch import distributed

    about: dict[str, Any] = {"pid": os.getpid(), "torch": str(torch.__version__)}
    if distributed.is_available() and distributed.is_initialized():
        _last["rank"] = distributed.get_rank()
        _last["world_size"] = distributed.get_world_size()
    return {**about, **_last}


# At the end the process groups may be gone.
_last: dict[str, Any] = {}
