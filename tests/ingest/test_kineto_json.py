"""The chunked JSON stream gives what json.loads gives, and says where text stops making sense."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gapscope.errors import GapscopeError
from gapscope.ingest.kineto_json import ByteSource, EventStream
from gapscope.ingest.kineto_repair import repair

TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(
        ['},{"ph":"X"', "}, {", "]", '"', "\\", "[{", "\n  },\n  {\n", "NaN", "\\u00e9"]
    ),
)
VALUE = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63),
        st.floats(allow_nan=False, allow_infinity=False),
        TEXT,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)
EVENT = st.fixed_dictionaries(
    {"ph": st.sampled_from("XMi"), "name": TEXT},
    optional={"ts": st.floats(0, 1e12), "cat": TEXT, "args": st.dictionaries(TEXT, VALUE)},
)
LAYOUT = st.fixed_dictionaries(
    {
        "indent": st.sampled_from([None, 0, 2]),
        "separators": st.sampled_from([None, (",", ":"), (" ,\n", " : ")]),
        "sort_keys": st.booleans(),
        "ensure_ascii": st.booleans(),
    }
)
MEMBERS = st.dictionaries(TEXT.filter(lambda key: key != "traceEvents"), VALUE, max_size=3)


def stream_of(path: Path, text: bytes, **sizes: int) -> EventStream[Any]:
    path.write_bytes(text)
    source = ByteSource(path, sizes.get("chunk_bytes", 1 << 16))
    return EventStream(source, Any, **sizes)


def events_of(stream: EventStream[Any]) -> list[Any]:
    return [event for chunk in stream for event in chunk]


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    events=st.lists(EVENT, max_size=12),
    before=MEMBERS,
    after=MEMBERS,
    layout=LAYOUT,
    bare=st.booleans(),
    zipped=st.booleans(),
    chunk_bytes=st.sampled_from([1, 7, 64, 300, 1 << 20]),
)
def test_equals_json_loads(
    *,
    tmp_path: Path,
    events: list[Any],
    before: dict[str, Any],
    after: dict[str, Any],
    layout: dict[str, Any],
    bare: bool,
    zipped: bool,
    chunk_bytes: int,
) -> None:
    after = {key: value for key, value in after.items() if key not in before}
    layout["sort_keys"] &= not (before or after)  # else the list would not stay between them
    trace: Any = events if bare else {**before, "traceEvents": events, **after}
    text = json.dumps(trace, **layout).encode()
    stream = stream_of(
        tmp_path / "t.json", gzip.compress(text, 1) if zipped else text, chunk_bytes=chunk_bytes
    )
    assert events_of(stream) == events
    assert stream.truncated is None
    assert not stream.unclosed_array
    if not bare:
        assert json.loads(stream.head) == before
        assert json.loads(stream.tail) == after
    assert stream.unreadable == stream.repaired == 0


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    events=st.lists(EVENT, min_size=1, max_size=6),
    layout=LAYOUT,
    cut=st.floats(0, 1),
    chunk_bytes=st.sampled_from([5, 50, 1 << 20]),
)
def test_truncated_anywhere_keeps_whole_events(
    tmp_path: Path, events: list[Any], layout: dict[str, Any], cut: float, chunk_bytes: int
) -> None:
    text = json.dumps({"schemaVersion": 1, "traceEvents": events}, **layout).encode()
    text = text.rstrip()[: int(cut * (len(text) - 1))]
    stream = stream_of(tmp_path / "t.json", text, chunk_bytes=chunk_bytes)
    try:
        found = events_of(stream)
    except GapscopeError:  # not even the event list has begun
        return
    assert stream.truncated is not None
    assert stream.truncated.offset == len(text)
    assert found == events[: len(found)]
    if len(found) < len(events):  # the first event that is missing was not complete
        text_up_to_it = json.dumps(
            {"schemaVersion": 1, "traceEvents": events[: len(found) + 1]}, **layout
        )
        end = len(text_up_to_it.encode()[: text_up_to_it.encode().rindex(b"]")].rstrip())
        assert end > len(text)


def test_nested_separators_do_not_cut_events(tmp_path: Path) -> None:
    nested = {"ph": "X", "args": {"list": [{"a": 1}, {"b": 2}, {"c": "},{"}]}}
    text = json.dumps({"traceEvents": [nested] * 400}, separators=(",", ":")).encode()
    assert events_of(stream_of(tmp_path / "t.json", text, chunk_bytes=512)) == [nested] * 400


def test_trace_events_inside_metadata_is_not_the_list(tmp_path: Path) -> None:
    text = b'{"x": {"traceEvents": [{"no": 1}]}, "y": "traceEvents", "traceEvents": [{"ph": "X"}]}'
    assert events_of(stream_of(tmp_path / "t.json", text)) == [{"ph": "X"}]


def test_several_gzip_members_and_trailing_zeros(tmp_path: Path) -> None:
    text = json.dumps([{"ph": "X", "n": n} for n in range(500)]).encode()
    data = gzip.compress(text[:777]) + gzip.compress(text[777:]) + b"\0" * 20
    stream = stream_of(tmp_path / "t.json", data, chunk_bytes=200)
    assert [event["n"] for event in events_of(stream)] == list(range(500))
    assert stream.source.problem is None


def test_bomb_is_inflated_in_pieces(tmp_path: Path) -> None:
    data = gzip.compress(b'{"schemaVersion":1,"pad":"' + b" " * (8 << 20) + b'"}')
    path = tmp_path / "t.json"
    path.write_bytes(data)
    assert max(map(len, ByteSource(path, 1 << 16).pieces())) <= 1 << 16


def test_oversized_event_stops_with_its_offset(tmp_path: Path) -> None:
    text = b'[{"ph":"X"},{"ph":"' + b"x" * 5000 + b'"},{"ph":"Z"}]'
    stream = stream_of(tmp_path / "t.json", text, chunk_bytes=64, limit_bytes=1024)
    assert events_of(stream) == [{"ph": "X"}]
    assert stream.truncated is not None
    assert stream.truncated.offset == len(b'[{"ph":"X"},')


@pytest.mark.parametrize(
    ("text", "fixed", "changes"),
    [
        (b'{"a": NaN, "b": -Infinity}', {"a": None, "b": None}, 2),
        (b'{"a": nan, "b": -inf, "c": "NaN"}', {"a": None, "b": None, "c": "NaN"}, 2),
        (b'{"a": -nan(ind)}', {"a": None}, 1),
        (b'{"a": "x\x01\ny"}', {"a": "x  y"}, 2),
        (b'{"a": "C:\\Users"}', {"a": "C:\\Users"}, 1),
        (b'{"a": "\\ud800"}', {"a": "\ufffd"}, 1),
        (b'{"a": "\\ud83d\\ude00 \\\\"}', {"a": "\U0001f600 \\"}, 0),
        (b'{"a": "\xff"}', {"a": "\ufffd"}, 1),
    ],
)
def test_repair(text: bytes, fixed: Any, changes: int) -> None:
    mended, count = repair(text)
    assert json.loads(mended) == fixed
    assert count == changes


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        (b"", "empty-input"),
        (b"  \n", "empty-input"),
        (b"PK\x03\x04", "not-a-kineto-trace"),
        (b'{"a": 1}', "not-a-kineto-trace"),
        (b'{"traceEvents": null}', "not-a-kineto-trace"),
        (b'{"traceEvents": {"a": []}}', "not-a-kineto-trace"),
        (b"{" * 100_000, "not-a-kineto-trace"),
        (b'{"schemaVersion": 1, "devic', "truncated-input"),
        (b"\x1f\x8b", "truncated-input"),
        (
            gzip.compress(b'{"schemaVersion": 1, "traceEvents": []}' * 9, mtime=0)[:20],
            "truncated-input",
        ),
        (b"\x1f\x8bnot gzip at all", "truncated-input"),
    ],
)
def test_unusable_input(tmp_path: Path, text: bytes, slug: str) -> None:
    with pytest.raises(GapscopeError) as caught:
        events_of(stream_of(tmp_path / "t.json", text))
    assert caught.value.slug == slug
    assert caught.value.hint
    assert "t.json" in caught.value.message
    assert str(tmp_path) not in caught.value.message


def test_deeply_nested_event_is_counted_and_the_others_kept(tmp_path: Path) -> None:
    deep = b'{"ph":"X","args":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    stream = stream_of(tmp_path / "t.json", b'[{"ph":"X"},' + deep + b',{"ph":"M"}]')
    assert events_of(stream) == [{"ph": "X"}, {"ph": "M"}]
    assert stream.unreadable == 1
