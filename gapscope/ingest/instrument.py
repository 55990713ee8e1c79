"""What `gapscope.instrument` said in a program: collectives as ranges, the rest as one file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapscope.ingest.base import MAX_RANK, TIME_LIMIT_NS, Sink
from gapscope.ingest.literals import no, number
from gapscope.ingest.nsys_columns import filtered, mapped

if TYPE_CHECKING:
    import pyarrow as pa

# As the instrument spells them; a test holds both to it.
DOMAIN = "gapscope"
FILE = "instrument.json"
FORMAT = "gapscope-instrument/1"
_COLLECTIVE = "collective {"

_MOST_BYTES = 64 << 20
_MOST_GROUPS = 10_000
_MOST_SAMPLES = 64
_LONGEST_TEXT = 1024
_PLAIN = re.compile(r"[ -~]{1,1024}")

_TEXTS = {"group_name": "group", "group_desc": "desc", "type": "type", "dtype": "dtype"}
_NUMBERS = {"elements_in": "in", "elements_out": "out", "group_size": "size"}


def collective_columns(
    texts: pa.Array, text_of: Callable[[int], str | None], shared: Mapping[str, pa.Array]
) -> dict[str, pa.Array] | None:
    """Rows of `collective` from ranges, of which `texts` refers to the names; None without any.

    `shared` has `tid`, `start_ns`, `end_ns` and the payload as `seq`.
    """
    import pyarrow.compute as pc

    is_said = mapped(texts, lambda key: int(bool(_said(text_of(key)))), "int")
    is_row = pc.fill_null(pc.equal(is_said, number(1)), no())
    if not is_row.true_count:
        return None
    kept = texts.filter(is_row)

    def column(member: str, kind: str) -> pa.Array:
        return mapped(kept, lambda key: _said(text_of(key)).get(member), kind)

    return {
        **filtered(shared, is_row),
        **{name: column(member, "text") for name, member in _TEXTS.items()},
        "group_ranks": column("ranks", "text"),
        **{name: column(member, "int") for name, member in _NUMBERS.items()},
    }


@lru_cache(maxsize=4096)
def _said(text: str | None) -> dict[str, Any]:
    """The members that a range's text names, each of its kind or None; empty for other texts."""
    if text is None or not text.startswith(_COLLECTIVE) or len(text) > 4 * _LONGEST_TEXT:
        return {}
    said = _object(text[len(_COLLECTIVE) - 1 :])
    if _text(said.get("type")) is None or _text(said.get("group")) is None:
        return {}
    read = {member: _text(said.get(member)) for member in (*_TEXTS.values(), "ranks")}
    return read | {member: _number(said.get(member), 2**62) for member in _NUMBERS.values()}


def write_record(path: Path, sink: Sink) -> str | None:
    """Rows from the file that the instrument left in the directory of a process, if it did.

    Returns which clock its readings are of.
    """
    file = path / FILE
    try:
        if not file.is_file():
            return None
        text = file.read_text("utf-8") if file.stat().st_size <= _MOST_BYTES else ""
    except (OSError, UnicodeDecodeError):
        text = ""
    document = _object(text)
    if document.get("format") != FORMAT:
        sink.quality(
            "instrument", "warn", f"{FILE} cannot be read: no process groups and no clock exchange"
        )
        return None
    _write_groups(document, sink)
    _write_units(document, sink)
    samples = _write_clock(document, sink)
    _quality(document, samples, sink)
    clock = document.get("clock")
    return _text(clock.get("reference_boot")) if samples and isinstance(clock, dict) else None


def _write_groups(document: dict[str, Any], sink: Sink) -> None:
    groups = [group for group in _objects(document.get("groups")) if _text(group.get("name"))]
    columns = {
        "group_name": [_text(group.get("name")) for group in groups],
        "group_desc": [_text(group.get("desc")) for group in groups],
        "backend": [_text(group.get("backend")) for group in groups],
        "group_size": [_number(group.get("size"), MAX_RANK) for group in groups],
        "group_ranks": [_text(group.get("ranks")) for group in groups],
    }
    sink.write("process_group", columns)


def _write_units(document: dict[str, Any], sink: Sink) -> None:
    rows = [
        (root, ordinal, unit)
        for root, one in enumerate(_objects(document.get("roots")))
        for ordinal, unit in enumerate(_objects(one.get("units")))
        if isinstance(unit.get("unit"), str)
    ]
    units = [unit for _, _, unit in rows]
    numbers = ("parameters", "elements", "shard_size", "replicate_size", "reduce_inputs")
    columns: dict[str, list[Any]] = {
        "root": [root for root, _, _ in rows],
        "ordinal": [ordinal for _, ordinal, _ in rows],
        "unit": ["" if unit["unit"] == "" else _text(unit["unit"]) for unit in units],
        **{name: [_number(unit.get(name), 2**62) for unit in units] for name in numbers},
        "reshard_size": [_reshard_size(unit) for unit in units],
        "param_dtype": [_text(unit.get("param_dtype")) for unit in units],
        "reduce_dtype": [_text(unit.get("reduce_dtype")) for unit in units],
        "unshard_in_backward": [_flag(unit.get("unshard_in_backward")) for unit in units],
        "forward_prefetch": [_lines(unit.get("forward_prefetch")) for unit in units],
        "backward_prefetch": [_lines(unit.get("backward_prefetch")) for unit in units],
    }
    sink.write("fsdp_group", columns)


def _reshard_size(unit: dict[str, Any]) -> int | None:
    policy = unit.get("reshard_after_forward")
    if policy is True:
        return _number(unit.get("shard_size"), MAX_RANK)
    return 1 if policy is False else _number(policy, MAX_RANK)


def _lines(value: Any) -> str | None:
    texts = [text for text in map(_text, value if isinstance(value, list) else []) if text]
    return "\n".join(texts[:_MOST_SAMPLES]) or None


def _flag(value: Any) -> int | None:
    return int(value) if isinstance(value, bool) else None


def _write_clock(document: dict[str, Any], sink: Sink) -> int:
    """Readings of rank 0's clock; how many there are. Rank 0's own clock is that clock."""
    clock = document.get("clock")
    clock = clock if isinstance(clock, dict) else {}
    rows: list[tuple[int, int, int]] = []
    for sample in _objects(clock.get("samples"))[:_MOST_SAMPLES]:
        at = _number(sample.get("at_ns"), TIME_LIMIT_NS)
        offset = _number(sample.get("offset_ns"), TIME_LIMIT_NS)
        uncertainty = _number(sample.get("uncertainty_ns"), TIME_LIMIT_NS)
        if at is None or offset is None or uncertainty is None or uncertainty < 0:
            continue
        # One kernel keeps one clock, unless a container was given an offset of its own.
        boot = _text(clock.get("boot"))
        if boot and boot == clock.get("reference_boot") and abs(offset) <= uncertainty:
            offset = uncertainty = 0
        rows.append((at, at + offset, uncertainty))
    if clock.get("rank") == 0 and not isinstance(clock.get("rank"), bool):
        rows = [(0, 0, 0)]
    sink.write(
        "clock_anchor",
        {
            "ts_ns": [row[0] for row in rows],
            "kind": ["rank0"] * len(rows),
            "value_ns": [row[1] for row in rows],
            "uncertainty_ns": [row[2] for row in rows],
        },
    )
    return len(rows)


def _quality(document: dict[str, Any], samples: int, sink: Sink) -> None:
    torch = _text(document.get("torch")) or "unknown"
    units = sum(len(_objects(root.get("units"))) for root in _objects(document.get("roots")))
    said = f"FSDP2 of torch {torch}: {units} parameter groups"
    faults = document.get("faults")
    if isinstance(faults, dict) and faults:
        kinds = ", ".join(sorted(_text(kind) or "?" for kind in faults)[:4])
        sink.quality(
            "instrument",
            "warn",
            f"{said}; hooks failed ({kinds}): anchors may be missing",
            "units of the ops whose anchors are missing",
        )
    else:
        sink.quality("instrument", "ok", said)
    steps = document.get("steps")
    if isinstance(steps, dict) and steps.get("completed") == 0:
        sink.quality(
            "instrument_steps",
            "info",
            "no optimizer step ended (a compiled one cannot be seen); `gapscope.instrument.step()` "
            "in the program marks steps",
        )
    clock = document.get("clock")
    notes = clock.get("notes") if isinstance(clock, dict) else None
    problems = [note for note in map(_text, notes if isinstance(notes, list) else []) if note]
    if problems and problems != ["one rank"]:
        sink.quality(
            "clock_exchange",
            "info" if samples else "warn",
            f"{samples} readings of rank 0's clock; {'; '.join(problems[:4])}",
            None if samples else "skew below the residual of matched collective ends",
        )


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[dict[str, Any]]:
    items = value[:_MOST_GROUPS] if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]


def _text(value: Any) -> str | None:
    """A short text of printable characters that is no path."""
    if not isinstance(value, str) or not _PLAIN.fullmatch(value) or "/" in value:
        return None
    return value


def _number(value: Any, limit: int) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > limit:
        return None
    return value
