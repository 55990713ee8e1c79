"""Found first on PYTHONPATH under `gapscope trace --fsdp2`: readies the hooks, then steps aside.

Python imports one module of this name when it starts. A `sitecustomize` that stood behind this one
is run as if this one were not there.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
# Not `gapscope.instrument`: the program's Python may have no GapScope, or another.
_NAME = "_gapscope_instrument"


def _activate() -> None:
    package = os.path.dirname(_HERE)
    try:
        spec = importlib.util.spec_from_file_location(
            _NAME, os.path.join(package, "__init__.py"), submodule_search_locations=[package]
        )
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            sys.modules[_NAME] = module
            spec.loader.exec_module(module)
            module.fsdp2()
    except Exception:  # noqa: BLE001 -- the program must start as without us
        sys.modules.pop(_NAME, None)


def _step_aside() -> None:
    elsewhere = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_activate()
_step_aside()
