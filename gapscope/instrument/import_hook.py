"""Runs a function once a module has been imported, without importing it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from .guard import guarded


class _After:
    def __init__(self, name: str, function: Callable[[], None]) -> None:
        self._name = name
        self._function = function

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                self._attach(spec)
                return spec
        return None

    @guarded
    def _attach(self, spec: ModuleSpec) -> None:
        """Let the module's own loader call us; who asks for the loader sees no other one."""
        loader = spec.loader
        # Loaders of the import system have it; typeshed knows only of their base.
        execute = loader.exec_module  # type: ignore[union-attr]

        def exec_module(module: ModuleType) -> None:
            _forget(loader)
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            self._function()

        # Of this loader alone, until `_forget`: its class keeps the method that typeshed knows.
        loader.exec_module = exec_module  # type: ignore[union-attr, method-assign]


@guarded
def _forget(loader: object) -> None:
    # What `_attach` put there; the class's own shows again.
    del loader.exec_module  # type: ignore[attr-defined]


def after_import(name: str, function: Callable[[], None]) -> None:
    """Call the function now if the module is there, else when it has been imported."""
    module = sys.modules.get(name)
    # A module that is being imported is there already, in part.
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        function()
        return
    sys.meta_path.insert(0, _After(name, function))
