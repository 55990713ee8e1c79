"""The two ends of a ping-pong: a server that stamps pings, and a client that keeps the best one."""

from __future__ import annotations

import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from .guard import guarded, note

_PING = struct.Struct("<q")
_PONG = struct.Struct("<qqq")
_FAREWELL = -1
_PINGS = 32
_TOKEN_BYTES = 16
_MOST_CONNECTIONS = 4096
_MOST_PINGS = 1024


class _Caller:
    """One connection: it must name the token first."""

    def __init__(self) -> None:
        self.data = b""
        self.is_known = False
        self.pings = 0


class Server:
    """Answers on a daemon thread until the process ends."""

    def __init__(self, token: bytes, clock: Callable[[], int]) -> None:
        self.token = token
        self._clock = clock
        self._callers: dict[socket.socket, _Caller] = {}
        self._greetings = 0
        self._farewells = 0
        self._socket = _listen()
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._end, self._heard_end = socket.socketpair()
        self._selector.register(self._heard_end, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="gapscope-clock", daemon=True)
        self._thread.start()

    def wait_for_farewells(self, patience_s: float) -> None:
        """Until every rank that measured at the start has done so at the end, or patience ends."""
        until = time.monotonic() + patience_s
        # Each of them greets twice, at the start and at the end.
        while 2 * self._farewells < self._greetings and time.monotonic() < until:
            time.sleep(0.005)

    def close(self) -> None:
        """Take no more calls."""
        self._end.close()
        self._thread.join(1)

    def _serve(self) -> None:
        try:
            while self._serve_once():
                pass
        except Exception as error:  # noqa: BLE001 -- who still calls finds nobody
            note(error)
        for each in (*self._callers, self._socket, self._heard_end):
            each.close()
        self._selector.close()

    def _serve_once(self) -> bool:
        for key, _ in self._selector.select():
            # Taken at once: what follows is the server's own time, which the client subtracts.
            arrived = self._clock()
            if key.fileobj is self._heard_end:
                return False
            if key.fileobj is self._socket:
                self._accept()
            else:
                self._answer(key.fileobj, arrived)
        return True

    @guarded
    def _accept(self) -> None:
        caller, _ = self._socket.accept()
        if len(self._callers) >= _MOST_CONNECTIONS:
            caller.close()
            return
        caller.setblocking(False)
        caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._callers[caller] = _Caller()
        self._selector.register(caller, selectors.EVENT_READ)

    def _answer(self, caller: Any, arrived: int) -> None:
        state = self._callers[caller]
        try:
            data = caller.recv(256)
            if not data or not self._reply(caller, state, data, arrived):
                self._drop(caller)
        except OSError:
            self._drop(caller)

    def _reply(self, caller: socket.socket, state: _Caller, data: bytes, arrived: int) -> bool:
        state.data += data
        if not state.is_known:
            if len(state.data) < _TOKEN_BYTES:
                return True
            if state.data[:_TOKEN_BYTES] != self.token:
                return False
            state.is_known = True
            state.data = state.data[_TOKEN_BYTES:]
            self._greetings += 1
        while len(state.data) >= _PING.size:
            (number,) = _PING.unpack_from(state.data)
            state.data = state.data[_PING.size :]
            state.pings += 1
            if number == _FAREWELL:
                self._farewells += 1
                return False
            if state.pings > _MOST_PINGS:
                return False
            caller.send(_PONG.pack(number, arrived, self._clock()))
        return True

    def _drop(self, caller: Any) -> None:
        del self._callers[caller]
        self._selector.unregister(caller)
        caller.close()


def _listen() -> socket.socket:
    """A socket for callers of either protocol, where the host speaks both."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                ("", 0), family=socket.AF_INET6, backlog=512, dualstack_ipv6=True
            )
        except OSError:
            pass
    return socket.create_server(("", 0), backlog=512)


def measure(
    addresses: Sequence[str],
    port: int,
    token: bytes,
    until: float,
    clock: Callable[[], int],
    *,
    is_last: bool = False,
) -> dict[str, int]:
    """The shortest of some round trips, in ns, by `until` of time.monotonic(); or an OSError."""
    with _connect(addresses, port, until) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.sendall(token)
        best: tuple[int, int, int] | None = None
        count = 0
        for number in range(_PINGS):
            left = until - time.monotonic()
            if left <= 0:
                break
            peer.settimeout(left)
            sent = clock()
            peer.sendall(_PING.pack(number))
            answered, arrived, left_at = _PONG.unpack(_receive(peer, _PONG.size))
            came = clock()
            if answered != number:
                raise ConnectionError("not our protocol")
            round_trip = (came - sent) - (left_at - arrived)
            if round_trip < 0:
                continue
            count += 1
            if best is None or round_trip < best[0]:
                # Twice the offset, so that halving happens once.
                best = round_trip, (arrived - sent) + (left_at - came), sent + (came - sent) // 2
        if best is None:
            raise TimeoutError
        if is_last:
            peer.sendall(_PING.pack(_FAREWELL))
    round_trip, twice_offset, at_ns = best
    return {
        "at_ns": at_ns,
        "offset_ns": twice_offset // 2,
        "uncertainty_ns": (round_trip + 1) // 2 + 1,
        "round_trips": count,
    }


def _connect(addresses: Sequence[str], port: int, until: float) -> socket.socket:
    error: OSError = TimeoutError()
    for index, address in enumerate(addresses):
        # An address that does not answer must leave time for the others.
        left = (until - time.monotonic()) / (len(addresses) - index)
        if left <= 0:
            break
        try:
            return socket.create_connection((address, port), timeout=left)
        except OSError as failed:
            error = failed
    raise error


def _receive(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = peer.recv(size - len(data))
        if not more:
            raise ConnectionError("closed")
        data += more
    return data
