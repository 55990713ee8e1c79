"""The clock of every rank against that of rank 0, by ping-pong over TCP.

Rank 0 answers pings from a thread of its own; each other rank sends some at the first forward and
some at the end of the process. Of the round trips the shortest counts: half of it bounds the error,
whatever the two directions took. A rank never waits longer than its patience, and rank 0 does not
wait for the start at all.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .guard import guarded
from .ping import Server, measure

KEY = "gapscope/clock"
# By the number of the forward, until one succeeds: rank 0 may be late, and the others run ahead of
# it. All waiting of a process together, with what follows, stays below two seconds.
_START_PATIENCE_S = {1: 0.3, 2: 0.2, 4: 0.2, 16: 0.1, 64: 0.1, 256: 0.1}
_END_PATIENCE_S = 0.8
_GRACE_S = 0.02
_POLL_S = 0.005

Clock = Callable[[], int]


class ClockExchange:
    """One process's part in it. `offset_ns`, added to this clock, gives that of rank 0."""

    def __init__(self, clock: Clock = time.monotonic_ns) -> None:
        self._clock = clock
        self._rank: int | None = None
        self._forwards = 0
        self._is_done = False
        self._server: Server | None = None
        self._peer: dict[str, Any] = {}
        self._samples: list[dict[str, Any]] = []
        self._said: list[str] = []
        self._boot = boot_id()

    @guarded
    def begin(self) -> None:
        """Start answering on rank 0; measure on the others, unless that is done or hopeless."""
        if self._is_done:
            return
        self._forwards += 1
        patience_s = _START_PATIENCE_S.get(self._forwards)
        if patience_s is None:
            return
        from torch import distributed

        if not distributed.is_initialized() or distributed.get_world_size() == 1:
            self._is_done = True
            self._said.append("one rank")
            return
        self._rank = distributed.get_rank()
        store = distributed.distributed_c10d._get_default_store()
        if self._rank == 0:
            self._is_done = True
            self.serve(store)
        else:
            self.ask(store, patience_s)

    @guarded
    def finish(self) -> None:
        """Measure once more, if rank 0 still answers; rank 0 waits for those that were there."""
        if self._server is not None:
            self._server.wait_for_farewells(_END_PATIENCE_S)
            self._server.close()
        elif self._peer:
            # The store is not asked again: a thread that is inside of it when Python ends is fatal.
            self._in_time(_END_PATIENCE_S, "end", lambda _until: None)

    def serve(self, store: Any) -> None:
        """Answer, and say where."""
        self._server = Server(secrets.token_bytes(16), self._clock)
        place = {
            "token": self._server.token.hex(),
            "port": self._server.port,
            "addresses": _own_addresses(),
            "boot": self._boot,
        }
        store.set(KEY, json.dumps(place))

    def ask(self, store: Any, patience_s: float) -> None:
        """Measure against who answers where the store says."""
        self._in_time(patience_s, "start", lambda until: self._find(store, until))
        self._is_done = bool(self._samples)

    def _find(self, store: Any, until: float) -> None:
        """Learn where rank 0 answers."""
        if self._peer:
            return
        while not store.check([KEY]):
            if time.monotonic() > until:
                raise TimeoutError
            time.sleep(_POLL_S)
        place = json.loads(store.get(KEY))
        if not isinstance(place, dict):
            raise TypeError
        self._peer = place

    def document(self) -> dict[str, Any]:
        """What `instrument.json` says of it."""
        return {
            "rank": self._rank,
            "boot": self._boot,
            "reference_boot": self._boot if self._rank == 0 else self._peer.get("boot"),
            "samples": self._samples,
            "notes": self._said,
        }

    def _in_time(self, patience_s: float, phase: str, prepare: Callable[[float], None]) -> None:
        """Measure on another thread, so that nothing can hold this one."""
        until = time.monotonic() + patience_s
        done: list[dict[str, Any]] = []

        def work() -> None:
            try:
                prepare(until)
                addresses = self._addresses()
                token = bytes.fromhex(self._peer["token"])
                sample = measure(
                    addresses,
                    int(self._peer["port"]),
                    token,
                    until,
                    self._clock,
                    is_last=phase == "end",
                )
                done.append({"phase": phase, **sample})
            except Exception as error:  # noqa: BLE001 -- said in the record, never raised
                problem.append(type(error).__name__)

        problem: list[str] = []
        thread = threading.Thread(target=work, name="gapscope-clock", daemon=True)
        thread.start()
        thread.join(patience_s + _GRACE_S)
        if done:
            self._samples.append(done[0])
            # A try before it that failed leaves nothing to say.
            self._said = [said for said in self._said if not said.startswith(f"{phase}:")]
        else:
            said = f"{phase}: {problem[0] if problem else 'no answer in time'}"
            if said not in self._said:
                self._said.append(said)

    def _addresses(self) -> list[str]:
        """Where rank 0 may be reached, the likeliest first."""
        here = ["127.0.0.1"] if self._peer.get("boot") == self._boot else []
        master = os.environ.get("MASTER_ADDR")
        given = [str(address) for address in self._peer.get("addresses", [])][:8]
        return list(dict.fromkeys([*here, *given, *([master] if master else [])]))


def boot_id() -> str | None:
    """A digest that two processes share only if one kernel keeps their clock."""
    import hashlib

    try:
        with Path("/proc/sys/kernel/random/boot_id").open("rb") as file:
            text = file.read(64)
    except OSError:
        return None
    return hashlib.blake2b(text.strip(), digest_size=8).hexdigest()


def _own_addresses() -> list[str]:
    """Addresses under which other hosts may reach this one."""
    found = []
    master = os.environ.get("MASTER_ADDR")
    if master:
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                # Sends nothing: the kernel picks the interface that leads there.
                probe.connect((master, 9))
                found.append(probe.getsockname()[0])
        except OSError:
            pass
    return [*found, socket.gethostname()]
