"""The policy file of `gapscope check`: limits as TOML, checked before anything is opened."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapscope.errors import GapscopeError

EXAMPLE = """\
# Limits for `gapscope check RUN --policy FILE`. A rule that is left out is not checked; one whose
# value is not known does not pass (exit code 3).

# The run's step: the median of its steps, each as long as on its slowest rank.
max_step_ms = 200.0

# How much longer a step may be than that of `--baseline RUN`. It fails where all of the interval
# lies above, passes where all of it lies below, and else is unknown: capture more steps.
max_regression_percent = 3.0

# Communication during which nothing else runs, on the rank that has most of it.
max_exposed_comm_percent = 35.0

# R1, R2 and R3 of the step, on the rank that has most of them. Needs a workload with a rule pack.
max_recoverable_percent = 25.0

# How much longer profiled steps are than those that no profiler watched. Needs reference_step_ms
# in [run] of gapscope.toml.
# max_perturbation_percent = 5.0

# Steps outside the boundary, on the rank that has fewest.
min_steps = 3

# Checks of `gapscope doctor RUN` that may forbid something; any other that does fails this rule,
# and so does an audit that does not hold.
tolerated_limits = [
    # An ordinary Nsight capture samples no hardware and no call stacks, and traces neither calls of
    # the operating system nor its scheduler.
    "call_stack_link", "gpu_metrics", "osrt_api", "thread_scheduling",
    # Waits that do not name their records leave blocking a lower bound.
    "event_edges", "wait_resolution",
    # Ranks that share a GPU slow each other down. Remove it where each should have its own.
    "shared_device",
]
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a limit must be: in words, and as a test."""

    words: str
    fits: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value >= 0
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


_NUMBER = Kind("a number, 0 or more", _is_number)
KEYS = {
    "max_step_ms": _NUMBER,
    "max_regression_percent": _NUMBER,
    "max_exposed_comm_percent": _NUMBER,
    "max_recoverable_percent": _NUMBER,
    "max_perturbation_percent": _NUMBER,
    "min_steps": Kind("a whole number above 0", _is_count),
    "tolerated_limits": Kind('a list of checks, like ["event_edges"]', _is_names),
}


def read(path: Path) -> dict[str, Any]:
    """The rules of a policy file, in the order of `KEYS`.

    Raises GapscopeError `bad-policy` for a file that is missing or no TOML, that has no rule, or
    whose rules or limits mean nothing.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    hint = "`gapscope check --example` prints one"
    try:
        found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no UTF-8"
        raise GapscopeError("bad-policy", f"`{path}` cannot be read: {reason}", hint) from error
    except tomllib.TOMLDecodeError as error:
        raise GapscopeError("bad-policy", f"`{path}` is no TOML: {error}", hint) from error
    for key, value in found.items():
        kind = KEYS.get(key)
        if kind is None:
            raise GapscopeError(
                "bad-policy", f"`{path}`: no rule `{key}`", f"rules: {', '.join(KEYS)}"
            )
        if not kind.fits(value):
            raise GapscopeError(
                "bad-policy", f"`{path}`: `{key}` is {value!r}", f"it must be {kind.words}"
            )
    if not found:
        raise GapscopeError("bad-policy", f"`{path}` has no rule", hint)
    return {key: found[key] for key in KEYS if key in found}
