"""What to simulate: the keys of a SPEC file, their defaults and limits."""

from __future__ import annotations

import sys
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from gapscope.errors import GapscopeError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Choice = tuple[str, ...]

MAX_RANKS = 1024
QUEUES: Choice = ("none", "two", "one")
SYNC: Choice = ("every", "last")
# What an injection may do, and which of its keys then mean something.
PLACES: dict[str, dict[str, frozenset[str]]] = {
    "R1": {
        "forward": frozenset({"ranks", "steps", "blocks", "amount_ms", "pieces"}),
        "backward": frozenset({"ranks", "steps", "blocks", "amount_ms", "pieces"}),
    },
    "R2": {"hw_queue": frozenset(), "stream": frozenset()},
    "R3": {
        "sleep": frozenset({"ranks", "steps", "amount_ms"}),
        "compute": frozenset({"ranks", "steps", "factor"}),
    },
    "H1": {"root": frozenset({"steps", "factor"})},
    "H2": {
        "transfer": frozenset({"steps", "blocks", "factor"}),
        "compute": frozenset({"steps", "factor"}),
    },
}


def _key(
    default: Any, doc: str, low: float | None = None, high: float | None = None, **more: Any
) -> Any:
    metadata = {"doc": doc, "low": low, "high": high, **more}
    if isinstance(default, tuple):
        return field(default=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Model:
    """What is trained: `blocks` sharded modules inside a root."""

    blocks: int = _key(6, "sharded blocks", 1, 512)
    layers_per_block: int = _key(
        2, "times the kernels of one transformer layer are launched per block", 1, 32
    )
    root_parameters: bool = _key(True, "the root holds embedding and head as a group of its own")
    reshard_after_forward: bool = _key(True, "free a block after forward and gather it again")
    micro_batches: int = _key(1, "forward and backward passes per step", 1, 64)
    gradient_sync: str = _key("every", "micro-batches that reduce gradients", choices=SYNC)
    forward_prefetch: int = _key(0, "blocks gathered ahead explicitly in forward", 0, 8)
    block_elements: int = _key(12_587_008, "parameters of a block", 1, 1e12)
    root_elements: int = _key(16_777_216, "parameters of the root", 1, 1e12)


@dataclass(frozen=True)
class Compute:
    """Device time of the work on the compute stream, before noise and stretch."""

    forward_ms: float = _key(5.0, "one block forward", 0.001, 1e5)
    backward_ms: float = _key(13.0, "one block backward", 0.001, 1e5)
    embedding_ms: float = _key(0.07, "embedding forward", 0.001, 1e5)
    embedding_backward_ms: float = _key(0.5, "embedding backward", 0.001, 1e5)
    head_ms: float = _key(8.2, "head and loss forward", 0.001, 1e5)
    loss_backward_ms: float = _key(3.8, "loss backward", 0.001, 1e5)
    head_backward_ms: float = _key(4.8, "head backward", 0.001, 1e5)
    optimizer_ms: float = _key(0.55, "optimizer", 0.001, 1e5)
    noise: float = _key(0.02, "relative spread of each kernel", 0, 0.3)
    stretch: float = _key(1.18, "factor on compute while communication runs beside it", 1, 3)


@dataclass(frozen=True)
class Transfer:
    """Time of a collective from its last arrival to its end."""

    block_gather_ms: float = _key(4.1, "all-gather of a block", 0.001, 1e5)
    block_scatter_ms: float = _key(4.3, "reduce-scatter of a block", 0.001, 1e5)
    root_gather_ms: float = _key(6.0, "all-gather of the root", 0.001, 1e5)
    root_scatter_ms: float = _key(5.9, "reduce-scatter of the root", 0.001, 1e5)
    spread: float = _key(0.04, "relative spread of each instance", 0, 0.3)
    end_spread_us: float = _key(30.0, "a rank may end this much before the last one", 0, 1e4)


@dataclass(frozen=True)
class Host:
    """Time of the launching threads."""

    launch_us: float = _key(10.0, "a launching call", 0.1, 1e5)
    gap_us: float = _key(70.0, "between two calls of the model's own code", 0, 1e6)
    hook_us: float = _key(250.0, "before a call inside FSDP's hooks", 0, 1e6)
    step_us: float = _key(300.0, "from the start of a step to its forward", 0, 1e6)
    spread: float = _key(0.2, "relative spread of each of these", 0, 0.3)
    sync: bool = _key(True, "wait for the device at the end of each step")


@dataclass(frozen=True)
class Device:
    """How the device starts what was issued. Ranges are drawn from evenly."""

    queues: str = _key(
        "none", "hardware queues that streams share: none, two (as MPS has), one", choices=QUEUES
    )
    launch_floor_us: tuple[float, float] = _key((4.0, 8.0), "issue to start on an idle device")
    stream_floor_us: tuple[float, float] = _key((3.0, 5.0), "after the op before on the stream")
    event_floor_us: tuple[float, float] = _key((8.0, 10.0), "after an op on another stream")
    copy_floor_us: tuple[float, float] = _key((5.0, 9.0), "after a copy on the same stream")
    queue_floor_us: tuple[float, float] = _key((1.5, 4.0), "after the op before in the queue")


@dataclass(frozen=True)
class Clock:
    """The ranks' trace clocks."""

    offset_us: float = _key(0.0, "clocks differ by up to this, either way", 0, 1e12)
    drift_ppb: float = _key(0.0, "clocks drift by up to this, either way", 0, 1e6)
    declared: bool = _key(True, "`rank.clock_base_ns` tells the offset; else it is unknown")
    exchange_us: float = _key(
        0.0,
        "round trip of the ranks' exchange of clocks, at start and end; 0: there is none",
        0,
        1e6,
    )
    ranks_per_host: int = _key(8, "ranks of one host", 1, MAX_RANKS)
    jump_us: float = _key(0.0, "the clock of `jump_rank` jumps by this", -1e12, 1e12)
    bend_ppb: float = _key(0.0, "and drifts by so much more from then on", -1e6, 1e6)
    jump_rank: int = _key(0, "rank whose clock jumps or bends", 0, MAX_RANKS - 1)
    jump_at_ms: float = _key(0.0, "true time of it, from the start of the first step", 0, 1e9)


@dataclass(frozen=True)
class Injection:
    """One fault of known size and place. Empty lists mean all."""

    gap_class: str = "R1"
    place: str = "forward"
    ranks: tuple[int, ...] = _key((), "ranks that it happens on")
    steps: tuple[int, ...] = _key((), "steps that it happens in")
    blocks: tuple[int, ...] = _key((), "blocks that it happens in")
    amount_ms: float = _key(0.0, "pause per block (R1), sleep per step (R3)", 0, 1e5)
    pieces: int = _key(1, "launches per block that share the pause", 1, 1000)
    factor: float = _key(1.0, "factor on the time of compute or of collectives", 0.001, 1000)

    @property
    def name(self) -> str:
        """Class and place in one word."""
        return f"{self.gap_class} {self.place}"

    def happens(self, rank: int, step: int) -> bool:
        """Whether it happens on a rank in a step."""
        return (not self.ranks or rank in self.ranks) and (not self.steps or step in self.steps)


@dataclass(frozen=True)
class Spec:
    """A whole SPEC file."""

    ranks: int = _key(2, "ranks, all of one shard group", 1, MAX_RANKS)
    steps: int = _key(5, "steps", 1, 100_000)
    seed: int = _key(0, "two runs of one SPEC are equal, with another seed they differ", 0, 2**62)
    model: Model = Model()
    compute: Compute = Compute()
    transfer: Transfer = Transfer()
    host: Host = Host()
    device: Device = Device()
    clock: Clock = Clock()
    injection: tuple[Injection, ...] = ()


_SECTIONS = {
    "model": Model,
    "compute": Compute,
    "transfer": Transfer,
    "host": Host,
    "device": Device,
    "clock": Clock,
}


def text_of(path: Path) -> str:
    """What a SPEC file says."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is no text"
        raise GapscopeError(
            "no-spec", f"`{path}`: {reason}", "print one: `gapscope simulate --example`"
        ) from error


def parse(text: str) -> Spec:
    """The SPEC in a text; GapscopeError names the key that is wrong."""
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _bad(f"not TOML: {error}") from error
    sections: dict[str, Any] = {
        name: _section(kind, given.pop(name, {}), name) for name, kind in _SECTIONS.items()
    }
    injections = given.pop("injection", [])
    if not isinstance(injections, list):
        raise _bad("`injection` is a list: write `[[injection]]`")
    top = [key for key in fields(Spec) if "doc" in key.metadata]
    spec = Spec(**_values(top, given, ""), **sections)
    found = tuple(_injection(one, number, spec) for number, one in enumerate(injections))
    if any(one.gap_class == "H1" for one in found) and not spec.model.root_parameters:
        raise _bad("`injection`: H1 needs `model.root_parameters = true`")
    if spec.clock.jump_rank >= spec.ranks:
        raise _bad(f"`clock.jump_rank` is a number from 0 to {spec.ranks - 1}")
    if any(one.place == "hw_queue" for one in found) and spec.device.queues != "none":
        raise _bad('`injection`: `hw_queue` needs `device.queues = "none"`, which it replaces')
    return Spec(**{key.name: getattr(spec, key.name) for key in fields(Spec)[:-1]}, injection=found)


def example() -> str:
    """A SPEC with every key at its default, and one injection."""
    lines = [f"{key.name} = {_toml(key.default)}  # {key.metadata['doc']}" for key in _plain(Spec)]
    for name, kind in _SECTIONS.items():
        lines += ["", f"# {(kind.__doc__ or '').strip()}", f"[{name}]"]
        for key in _plain(kind):
            choices = key.metadata.get("choices")
            said = f" ({', '.join(choices)})" if choices and name != "device" else ""
            lines.append(f"{key.name} = {_toml(key.default)}  # {key.metadata['doc']}{said}")
    lines += [
        "",
        "# Faults, any number. Keys by class and place, empty lists mean all:",
        "#   R1 forward, backward   the host pauses: amount_ms, pieces, ranks, steps, blocks",
        "#   R2 hw_queue            streams share two hardware queues",
        "#   R2 stream              collectives run on the compute stream",
        "#   R3 sleep               amount_ms before each step: ranks (default: the last), steps",
        "#   R3 compute             factor on compute: ranks (default: the last), steps",
        "#   H1 root                factor on the collectives of the root: steps",
        "#   H2 transfer            factor on the collectives of blocks: steps, blocks",
        "#   H2 compute             factor on all compute: steps",
        "[[injection]]",
        'class = "R3"',
        'place = "sleep"',
        "ranks = [1]",
        "amount_ms = 10.0",
    ]
    return "\n".join(lines) + "\n"


def _plain(kind: type) -> list[Field[Any]]:
    return [key for key in fields(kind) if "doc" in key.metadata and key.default is not MISSING]


def _section(kind: type, given: Any, name: str) -> Any:
    if not isinstance(given, dict):
        raise _bad(f"`{name}` is a section: write `[{name}]`")
    return kind(**_values(_plain(kind), given, f"{name}."))


def _values(known: list[Field[Any]], given: dict[str, Any], prefix: str) -> dict[str, Any]:
    names = {key.name: key for key in known}
    for name in given:
        if name not in names:
            raise _bad(f"no key `{prefix}{name}`; here are: {', '.join(names)}")
    return {name: _value(names[name], value, prefix + name) for name, value in given.items()}


def _value(key: Field[Any], value: Any, name: str) -> Any:
    default = key.default
    low, high = key.metadata["low"], key.metadata["high"]
    choices = key.metadata.get("choices")
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise _bad(f"`{name}` is true or false")
        return value
    if isinstance(default, str):
        if choices and value not in choices:
            raise _bad(f"`{name}` is one of {', '.join(choices)}")
        return value
    if isinstance(default, tuple):
        return _listed(default, value, name)
    whole = isinstance(default, int)
    fits = isinstance(value, int) if whole else isinstance(value, (int, float))
    if isinstance(value, bool) or not fits or not low <= value <= high:
        kind = "a whole number" if whole else "a number"
        raise _bad(f"`{name}` is {kind} from {low:g} to {high:g}")
    return value if whole else float(value)


def _listed(default: tuple[Any, ...], value: Any, name: str) -> tuple[Any, ...]:
    if default:
        numbers = isinstance(value, list) and all(
            isinstance(one, (int, float)) and not isinstance(one, bool) for one in value
        )
        if not numbers or len(value) != 2 or not 0 <= value[0] <= value[1] <= 1e4:
            raise _bad(f"`{name}` is [least, most] in us, from 0 to 10000")
        return (float(value[0]), float(value[1]))
    if not isinstance(value, list) or not all(
        isinstance(one, int) and not isinstance(one, bool) for one in value
    ):
        raise _bad(f"`{name}` is a list of whole numbers")
    return tuple(value)


def _injection(given: Any, number: int, spec: Spec) -> Injection:
    prefix = f"injection[{number}]."
    if not isinstance(given, dict):
        raise _bad("`injection` is a list: write `[[injection]]`")
    given = dict(given)
    gap_class = given.pop("class", None)
    if gap_class not in PLACES:
        raise _bad(f"`{prefix}class` is one of {', '.join(PLACES)}")
    places = PLACES[gap_class]
    place = given.pop("place", next(iter(places)))
    if place not in places:
        raise _bad(f"`{prefix}place` of {gap_class} is one of {', '.join(places)}")
    for name in given:
        if name not in places[place]:
            meant = ", ".join(sorted(places[place])) or "none"
            raise _bad(f"no key `{prefix}{name}` for {gap_class} {place}; here are: {meant}")
    values = _values(_plain(Injection), given, prefix)
    for needed in ("amount_ms", "factor"):
        if needed in places[place] and needed not in values:
            raise _bad(f"`{prefix}{needed}` is missing")
    if gap_class == "R3" and not values.get("ranks"):
        values["ranks"] = (spec.ranks - 1,)
    limits = {"ranks": spec.ranks, "steps": spec.steps, "blocks": spec.model.blocks}
    for name, limit in limits.items():
        if any(not 0 <= one < limit for one in values.get(name, ())):
            raise _bad(f"`{prefix}{name}` are numbers from 0 to {limit - 1}")
    return Injection(gap_class=gap_class, place=place, **values)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return f"{value}"


def _bad(message: str) -> GapscopeError:
    return GapscopeError("bad-spec", message, "print a SPEC: `gapscope simulate --example`")
