"""NVTX ranges and marks in the domain `gapscope`.

Texts are registered with NVTX once and kept, so that they must be few: numbers that count up go
into the payload.
"""

from __future__ import annotations

from typing import Any

from .guard import guarded

DOMAIN = "gapscope"

# Far more than a model has units; a program that makes more of them is not said in full.
_MOST_TEXTS = 100_000


class Voice:
    """Says things to whatever tool listens to NVTX."""

    def __init__(self, domain: Any) -> None:
        self._domain = domain
        self._attributes: dict[str, Any] = {}

    def push(self, text: str) -> bool:
        """Open a range that nests on this thread; whether it is open and has to be popped."""
        return bool(self._push(text))

    @guarded
    def pop(self) -> None:
        """Close the thread's innermost range."""
        self._domain.pop_range()

    @guarded
    def start(self, text: str, payload: int | None = None) -> int | None:
        """Open a range that need not nest; the number to end it with."""
        attributes = self._of(text) if payload is None else self._numbered(text, payload)
        return None if attributes is None else self._domain.start_range(attributes)

    @guarded
    def end(self, number: int | None) -> None:
        """Close a range that `start` opened."""
        if number is not None:
            self._domain.end_range(number)

    @guarded
    def mark(self, text: str) -> None:
        """Say something that takes no time."""
        attributes = self._of(text)
        if attributes is not None:
            self._domain.mark(attributes)

    @guarded
    def _push(self, text: str) -> bool:
        attributes = self._of(text)
        if attributes is None:
            return False
        self._domain.push_range(attributes)
        return True

    def _of(self, text: str) -> Any:
        found = self._attributes.get(text)
        if found is None and len(self._attributes) < _MOST_TEXTS:
            found = self._attributes[text] = self._domain.get_event_attributes(message=text)
        return found

    def _numbered(self, text: str, payload: int) -> Any:
        # Not the kept attributes: another thread may be using them.
        return self._domain.get_event_attributes(message=text, payload=payload)


@guarded
def find_voice() -> Voice | None:
    """The domain, if NVTX is installed and a tool listens."""
    try:
        import nvtx
    except ImportError:
        return None
    domain = nvtx.get_domain(DOMAIN)
    # Without a tool it is a dummy, which has no handle.
    return Voice(domain) if hasattr(domain, "handle") else None
