"""Collectives of FSDP2: a range around each launch that says group, kind and size.

The range's payload is the number of the collective in its group, counted by the process from its
start. All ranks of a group issue the same collectives in the same order, or they would hang, so
that equal numbers belong together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from .guard import guarded
from .voice import Voice

# Longer lists are said as a progression or a digest: the text of a range must stay short.
_MOST_RANKS = 64


class Collectives:
    """Numbers collectives by group and says them."""

    def __init__(self, voice: Voice) -> None:
        self._voice = voice
        self._groups: dict[str, dict[str, Any]] = {}
        self._issued: dict[str, int] = {}
        self._texts: dict[tuple[Any, ...], str] = {}

    @guarded
    def start(self, kind: str, group: Any, tensor_in: Any, tensor_out: Any) -> int | None:
        """Open the range of a collective that is about to be launched."""
        name = str(group.group_name)
        if name not in self._groups:
            self._groups[name] = _describe(group)
        number = self._issued.get(name, 0)
        self._issued[name] = number + 1
        dtype = None if tensor_out is None else tensor_out.dtype
        sizes = tuple(None if t is None else t.numel() for t in (tensor_in, tensor_out))
        key = (kind, name, dtype, sizes)
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = range_text(kind, self._groups[name], dtype, sizes)
        opened: int | None = self._voice.start(text, number)
        return opened

    def end(self, number: int | None) -> None:
        """Close it."""
        self._voice.end(number)

    def groups(self) -> list[dict[str, Any]]:
        """The groups that were used, and how often."""
        return [
            {**group, "collectives": self._issued.get(name, 0)}
            for name, group in self._groups.items()
        ]


class Announced:
    """FSDP2's object that launches a collective, with a range around each launch."""

    def __init__(self, inner: Any, kind: str, collectives: Collectives) -> None:
        self._inner = inner
        self._kind = kind
        self._collectives = collectives

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        number = self._start(*args, **kwargs)
        try:
            return self._inner(*args, **kwargs)
        finally:
            self._collectives.end(number)

    @guarded
    def _start(
        self, output_tensor: Any, input_tensor: Any, group: Any, *_: Any, **__: Any
    ) -> int | None:
        number: int | None = self._collectives.start(self._kind, group, input_tensor, output_tensor)
        return number


def _describe(group: Any) -> dict[str, Any]:
    from torch import distributed

    ranks = distributed.get_process_group_ranks(group)
    return {
        "name": str(group.group_name),
        "desc": str(getattr(group, "group_desc", "")) or None,
        "backend": str(distributed.get_backend(group)),
        "size": len(ranks),
        "ranks": ranks_text(ranks),
    }


def ranks_text(ranks: Sequence[int]) -> str:
    """The ranks in few characters, and never the same for two groups."""
    if len(ranks) <= _MOST_RANKS:
        return str(list(ranks))
    stride = ranks[1] - ranks[0]
    if list(ranks) == list(range(ranks[0], ranks[0] + stride * len(ranks), stride or 1)):
        return f"{ranks[0]}..{ranks[-1]} by {stride}"
    return hashlib.blake2b(str(list(ranks)).encode(), digest_size=8).hexdigest()


def range_text(kind: str, group: dict[str, Any], dtype: Any, sizes: tuple[int | None, ...]) -> str:
    """What the range of a collective says."""
    said = {
        "type": kind,
        "group": group["name"],
        "desc": group["desc"],
        "size": group["size"],
        "ranks": group["ranks"],
        "dtype": None if dtype is None else str(dtype).removeprefix("torch."),
        "in": sizes[0],
        "out": sizes[1],
    }
    return "collective " + json.dumps(said)
