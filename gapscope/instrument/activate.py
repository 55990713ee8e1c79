"""The two calls that a program may make, and what they set in motion."""

from __future__ import annotations

from .guard import guarded
from .import_hook import after_import

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .session import Session

# Its last line is reached when all of FSDP2 is there.
_FSDP2 = "torch.distributed.fsdp._fully_shard"

_session: Session | None = None
_is_asked = False


@guarded
def fsdp2() -> None:
    """Say what FSDP2 does, from its import on; at once if that was before.

    Nothing happens without NVTX's Python package (`pip install nvtx`), or where no tool listens.
    """
    global _is_asked  # noqa: PLW0603 -- one process, one session
    if not _is_asked:
        _is_asked = True
        after_import(_FSDP2, _begin)


@guarded
def step() -> None:
    """End a training step and begin the next one, instead of at the ends of optimizer steps."""
    if _session is not None:
        _session.steps.explicit()


@guarded
def _begin() -> None:
    global _session  # noqa: PLW0603 -- one process, one session
    # Not before: most Python processes never come here, and must start as fast as ever.
    from .patch import patch
    from .session import Session
    from .voice import find_voice

    voice = find_voice()
    if voice is not None and _session is None:
        _session = Session(voice)
        patch(_session)
