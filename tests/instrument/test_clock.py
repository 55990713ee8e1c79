"""The clock exchange between two ends in one process; torch is not needed."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from gapscope.instrument.clock import KEY, ClockExchange, boot_id
from gapscope.instrument.ping import Server, measure

SHIFT_NS = 987_654_321_012_345


class Store:
    """What is used of torch's store."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def set(self, key: str, value: str) -> None:
        self.values[key] = value.encode()

    def get(self, key: str) -> bytes:
        return self.values[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)


def soon(seconds: float = 5) -> float:
    return time.monotonic() + seconds


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def place_of(port: int) -> str:
    return json.dumps({"token": "00" * 16, "port": port, "addresses": [], "boot": boot_id()})


def test_one_clock_is_no_offset():
    server = Server(b"t" * 16, time.monotonic_ns)
    sample = measure(["127.0.0.1"], server.port, b"t" * 16, soon(), time.monotonic_ns)
    server.close()
    assert abs(sample["offset_ns"]) <= sample["uncertainty_ns"]
    assert sample["round_trips"] == 32


@pytest.mark.parametrize("shift", [SHIFT_NS, -SHIFT_NS])
def test_a_shift_is_recovered(shift: int):
    server = Server(b"t" * 16, lambda: time.monotonic_ns() + shift)
    sample = measure(["127.0.0.1"], server.port, b"t" * 16, soon(), time.monotonic_ns)
    server.close()
    assert abs(sample["offset_ns"] - shift) <= sample["uncertainty_ns"]
    # Not a bound that anything would satisfy.
    assert sample["uncertainty_ns"] < SHIFT_NS // 1000


def test_exchange_at_start_and_end():
    store = Store()
    first, second = ClockExchange(lambda: time.monotonic_ns() + SHIFT_NS), ClockExchange()
    first.serve(store)
    second.ask(store, 2)
    farewell = threading.Thread(target=first.finish)
    farewell.start()
    second.finish()
    farewell.join()
    document = second.document()
    assert [sample["phase"] for sample in document["samples"]] == ["start", "end"]
    for sample in document["samples"]:
        assert abs(sample["offset_ns"] - SHIFT_NS) <= sample["uncertainty_ns"]
    assert document["notes"] == []
    assert document["reference_boot"] == document["boot"] is not None


def test_rank_0_that_is_gone_is_said():
    store = Store()
    first, second = ClockExchange(), ClockExchange()
    first.serve(store)
    second.ask(store, 2)
    first.finish()
    second.finish()
    document = second.document()
    assert len(document["samples"]) == 1
    (note,) = document["notes"]
    assert note.startswith("end: ")


def test_silence_is_not_waited_for(silent: socket.socket):
    store = Store()
    store.set(KEY, place_of(silent.getsockname()[1]))
    exchange = ClockExchange()
    # Far more time than it takes, or the test would hang.
    waiting = threading.Thread(
        target=lambda: (exchange.ask(store, 2), exchange.finish()), daemon=True
    )
    waiting.start()
    waiting.join(60)
    assert not waiting.is_alive()
    assert exchange.document()["samples"] == []
    assert exchange.document()["notes"][0].startswith("start: ")


def test_a_store_that_never_hears_of_rank_0_is_given_up():
    exchange = ClockExchange()
    exchange.ask(Store(), 0.1)
    assert exchange.document()["notes"] in (["start: TimeoutError"], ["start: no answer in time"])


def test_rank_0_that_is_late_is_found_by_a_later_forward():
    store = Store()
    first, second = ClockExchange(), ClockExchange()
    second.ask(store, 0.01)
    assert len(second.document()["notes"]) == 1
    first.serve(store)
    second.ask(store, 2)
    second.finish()
    first.finish()
    assert [sample["phase"] for sample in second.document()["samples"]] == ["start", "end"]
    # A try that came too early is no fault of an exchange that took place.
    assert second.document()["notes"] == []


@pytest.mark.parametrize("place", [b"", b"[]", b"{}", b'{"token": "zz", "port": 1}', b"\xff"])
def test_a_store_that_says_nonsense(place: bytes):
    store = Store()
    store.values[KEY] = place
    exchange = ClockExchange()
    exchange.ask(store, 2)
    (note,) = exchange.document()["notes"]
    assert note.startswith("start: ")


def test_who_does_not_know_the_token_gets_no_answer():
    server = Server(b"t" * 16, time.monotonic_ns)
    with pytest.raises(OSError):
        measure(["127.0.0.1"], server.port, b"x" * 16, soon(), time.monotonic_ns)
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as caller:
        caller.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert caller.recv(100) == b""
    # The next one is answered all the same.
    assert measure(["127.0.0.1"], server.port, b"t" * 16, soon(), time.monotonic_ns)["round_trips"]
    server.close()


def test_an_address_that_does_not_answer_leaves_time_for_the_next():
    server = Server(b"t" * 16, time.monotonic_ns)
    # Set aside for documentation: nobody answers there.
    addresses = ["192.0.2.1", "127.0.0.1"]
    sample = measure(addresses, server.port, b"t" * 16, soon(2), time.monotonic_ns)
    server.close()
    assert sample["round_trips"] == 32
