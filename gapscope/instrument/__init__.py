"""FSDP2 anchors, steps, process groups and clocks, said by the traced program itself.

`gapscope trace --fsdp2` brings this into a program without a change to it; `fsdp2()` does the same
from within. What is said are NVTX ranges and marks in the domain `gapscope`, which GapScope's own
tracer and Nsight Systems record, and one `instrument.json` beside the tracer's streams. Nothing
here may change what the program does: what goes wrong is counted and otherwise kept silent.

Only the standard library, torch and nvtx are used here, and torch is never imported first: the
package is also loaded alone, in programs that know nothing of the rest of GapScope.
"""

from __future__ import annotations

import sys

from .activate import fsdp2, step

# The name under which `site/sitecustomize.py` loads this package.
_ALONE = "_gapscope_instrument"
if __name__ != _ALONE and _ALONE in sys.modules:
    fsdp2 = sys.modules[_ALONE].fsdp2
    step = sys.modules[_ALONE].step

__all__ = ["fsdp2", "step"]
