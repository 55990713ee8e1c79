"""Found first on PYTHONPATH under `gapscope trace --fsdp2`: readies the hooks, then steps aside.

Python imports one module of this name when it starts. A `sitecustomize` that stood behind this one is
run as if this one were not there.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _activate():
    package = os.path.dirname(_HERE)
    name = "_gapscope_instrument"
    try:
        spec = importlib.util.spec_from_file_location(
            name, os.path.join(package, "__init__.py"), submodule_search_locations=[package]
        )
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        module.fsdp2()
    except Exception:  # noqa: BLE001 -- the program must start as without us
        sys.modules.pop(name, None)


def _step_aside():
    elsewhere = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_activate()
_step_aside()
