"""The wraps around FSDP2: names in its modules and methods of `FSDPParamGroup`.

Checked with the torch versions that `tests/instrument/README.md` names. Methods of `FSDPState` are
left alone: modules hold them as bound methods from `fully_shard` on. Everything wrapped here runs
outside of compiled graphs, in hooks that FSDP2 itself disables for dynamo.
"""

from __future__ import annotations

import functools
import inspect
import json
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .collectives import Announced
from .guard import guarded
from .session import Session
from .units import fqn

_PACKAGE = "torch.distributed.fsdp._fully_shard"


def patch(session: Session) -> None:
    """Wrap what there is; a version that lacks a name lacks the anchor."""
    _labels(session)
    _groups(session)
    _collectives(session)
    _roots(session)


@guarded
def _labels(session: Session) -> None:
    """FSDP2's own labels become NVTX ranges of the same text and nesting."""
    import torch

    original: Any = torch.profiler.record_function

    class Labelled:
        """`record_function`, and a range around it."""

        def __init__(self, name: str, args: str | None = None) -> None:
            self._inner = original(name, args)
            self._name = name
            self._is_open = False

        def __enter__(self) -> Any:
            session.label(self._name)
            self._is_open = session.voice.push(self._name)
            return self._inner.__enter__()

        def __exit__(self, *error: object) -> Any:
            try:
                return self._inner.__exit__(*error)
            finally:
                if self._is_open:
                    session.voice.pop()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

    for name, module in list(sys.modules.items()):
        if name.startswith(_PACKAGE) and vars(module).get("record_function") is original:
            # Modules are looked up at run time: mypy cannot know what they hold, here and below.
            module.record_function = Labelled  # type: ignore[attr-defined]
    state = sys.modules[_PACKAGE + "._fsdp_state"]
    is_whole = vars(state).get("torch") is torch
    if is_whole:
        profiler = _View(torch.profiler, record_function=Labelled)
        state.torch = _View(torch, profiler=profiler)  # type: ignore[attr-defined]


class _View(ModuleType):
    """A module in which a few names are others."""

    def __init__(self, module: ModuleType, **others: Any) -> None:
        super().__init__(module.__name__)
        self._module = module
        self.__dict__.update(others)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_module"], name)


@guarded
def _groups(session: Session) -> None:
    """What labels do not say: unshards that do nothing, waits for nothing, and reshards."""
    group_class = sys.modules[_PACKAGE + "._fsdp_param_group"].FSDPParamGroup
    said: dict[tuple[Any, ...], str] = {}

    def say(group: Any, what: str, phase: str, is_real: bool) -> None:
        place = session.units.place(group) or (None, None)
        key = (what, is_real, phase, fqn(group), *place)
        text = said.get(key)
        if text is None:
            facts = dict(
                zip(("what", "is_real", "phase", "unit", "root", "group"), key, strict=True)
            )
            text = said[key] = "anchor " + json.dumps(facts)
        session.voice.mark(text)

    def around(
        name: str, before: Callable[[Any], Any], is_real: Callable[[Any, Any], bool]
    ) -> None:
        original = getattr(group_class, name)

        @guarded
        def remember(group: Any) -> Any:
            return group._training_state.name, before(group)

        @guarded
        def tell(group: Any, remembered: Any) -> None:
            phase, state = remembered
            say(group, name, phase, is_real(group, state))

        @functools.wraps(original)
        def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
            remembered = remember(self)
            result = original(self, *args, **kwargs)
            if remembered is not None:
                tell(self, remembered)
            return result

        setattr(group_class, name, wrapped)

    def pending(group: Any) -> bool:
        return group._all_gather_result is not None

    for name, before, is_real in (
        ("unshard", pending, lambda group, was: not was and pending(group)),
        ("wait_for_unshard", pending, lambda _group, was: was),
        ("reshard", lambda g: g.is_unsharded, lambda group, was: was and not group.is_unsharded),
    ):
        if hasattr(group_class, name):
            around(name, before, is_real)


@guarded
def _collectives(session: Session) -> None:
    """The objects that launch FSDP2's collectives reach it as arguments of these two functions."""
    module = sys.modules[_PACKAGE + "._fsdp_param_group"]
    gather, reduce = vars(module).get("foreach_all_gather"), vars(module).get("foreach_reduce")
    if gather is not None:
        module.foreach_all_gather = _announcing(  # type: ignore[attr-defined]
            gather, "all_gather_comm", "all_gather", session
        )
    if reduce is not None:
        module.foreach_reduce = _reducing(  # type: ignore[attr-defined]
            _announcing(reduce, "reduce_scatter_comm", "reduce_scatter", session), session
        )


def _announcing(
    original: Callable[..., Any], argument: str, kind: str, session: Session
) -> Callable[..., Any]:
    """The function, given an object that says what it launches."""
    position = list(inspect.signature(original).parameters).index(argument)

    @guarded
    def exchanged(args: tuple[Any, ...]) -> tuple[Any, ...]:
        announced = Announced(args[position], kind, session.collectives)
        return (*args[:position], announced, *args[position + 1 :])

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if len(args) > position:
            args = exchanged(args) or args
        return original(*args, **kwargs)

    return wrapped


def _reducing(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    """A range around the all-reduce of hybrid sharding, which no object launches.

    It holds the reduce-scatter too: kernels tell themselves apart by their names.
    """
    names = list(inspect.signature(original).parameters)
    group_at, wanted_at = names.index("all_reduce_group"), names.index("all_reduce_grads")

    @guarded
    def begin(args: tuple[Any, ...]) -> int | None:
        group = args[group_at]
        if group is None or not args[wanted_at]:
            return None
        number: int | None = session.collectives.start("all_reduce", group, None, None)
        return number

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        number = begin(args)
        try:
            return original(*args, **kwargs)
        finally:
            session.collectives.end(number)

    return wrapped


@guarded
def _roots(session: Session) -> None:
    """A state that becomes a root knows its groups from then on."""
    state_class = sys.modules[_PACKAGE + "._fsdp_state"].FSDPState
    original = state_class._init_shared_state

    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        session.units.add_root(self)
        return result

    state_class._init_shared_state = wrapped
