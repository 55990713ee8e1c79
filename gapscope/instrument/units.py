"""Parameter groups of FSDP2: which there are, and what each was told to do."""

from __future__ import annotations

import weakref
from typing import Any

from .guard import guarded

_MOST_UNITS = 10_000


class Units:
    """Groups in the order in which their root lists them. Holds no module alive."""

    def __init__(self) -> None:
        self.roots: list[dict[str, Any]] = []
        self._places: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()

    @guarded
    def add_root(self, state: Any) -> None:
        """A state that has become a root, with everything below it; settings are final by now."""
        root = len(self.roots)
        # Before torch 2.12 a state is listed once for each of its modules.
        states = dict.fromkeys(state._state_ctx.all_states)
        groups = [(group, one) for one in states for group in groups_of(one)]
        for ordinal, (group, _) in enumerate(groups):
            self._places[group] = (root, ordinal)
        described = [_group(group, one) for group, one in groups[:_MOST_UNITS]]
        self.roots.append({"has_parameters": bool(groups_of(state)), "units": described})

    def place(self, group: Any) -> tuple[int, int] | None:
        """Number of the group's root, and of the group below it; None before the first forward."""
        return self._places.get(group)


def groups_of(state: Any) -> list[Any]:
    """The parameter groups of a state; one at most before torch 2.12."""
    several = getattr(state, "_fsdp_param_groups", None)
    if several is not None:
        return list(several)
    one = state._fsdp_param_group
    return [] if one is None else [one]


def fqn(group: Any) -> str:
    """The unit's name as FSDP2's labels have it; '' for the root."""
    return getattr(group, "_module_fqn", None) or ""


@guarded
def _group(group: Any, state: Any) -> dict[str, Any]:
    mesh = group.mesh_info
    policy = group.mp_policy
    return {
        "unit": fqn(group),
        "modules": len(group.modules),
        "parameters": len(group.fsdp_params),
        "elements": sum(param._orig_size.numel() for param in group.fsdp_params),
        "reshard_after_forward": _reshard(group),
        "shard_size": getattr(mesh, "shard_mesh_size", None),
        "replicate_size": getattr(mesh, "replicate_mesh_size", None),
        "param_dtype": _name(policy.param_dtype),
        "reduce_dtype": _name(policy.reduce_dtype),
        "output_dtype": _name(policy.output_dtype),
        "offload": type(group.offload_policy).__name__,
        "unshard_in_backward": getattr(group, "unshard_in_backward", True),
        "reduce_inputs": getattr(group, "reduce_scatter_max_input_buffers", 1),
        "forward_prefetch": _names(state._states_to_forward_prefetch),
        "backward_prefetch": _names(state._states_to_backward_prefetch),
    }


def _reshard(group: Any) -> bool | int:
    """False, True, or the number of ranks that keep a copy together."""
    after = group.post_forward_mesh_info
    if after is None:
        return False
    return True if after is group.mesh_info or after == group.mesh_info else after.shard_mesh_size


def _names(states: Any) -> list[str]:
    return [fqn(group) for state in states for group in groups_of(state)]


def _name(dtype: Any) -> str | None:
    return None if dtype is None else str(dtype).removeprefix("torch.")
