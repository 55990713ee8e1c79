"""What one process knows and has said so far."""

from __future__ import annotations

import atexit
import os
from typing import Any

from .clock import ClockExchange
from .collectives import Collectives
from .guard import guarded
from .record import write_record
from .steps import Steps
from .units import Units
from .voice import Voice


class Session:
    """Everything that the hooks share."""

    def __init__(self, voice: Voice) -> None:
        self.voice = voice
        self.units = Units()
        self.collectives = Collectives(voice)
        self.steps = Steps(voice)
        self.clock = ClockExchange()
        self._pid = os.getpid()
        self._is_first = True

    @guarded
    def label(self, text: str) -> None:
        """Called with each of FSDP2's own labels before its range opens."""
        if text == "FSDP::root_pre_forward":
            self._root_forward()

    @guarded
    def _root_forward(self) -> None:
        """FSDP2 has been initialised, process groups exist, and the ranks are near each other."""
        self.clock.begin()
        if self._is_first:
            self._is_first = False
            self.save()
            atexit.register(self._finish)
            self.steps.follow_optimizers()
        # Last: what came before is not the program's time.
        self.steps.begin()

    @guarded
    def _finish(self) -> None:
        if os.getpid() == self._pid:
            self.clock.finish()
            self.save()

    @guarded
    def save(self) -> None:
        """Write what is known; what is on disk is always whole."""
        write_record(self.document())

    def document(self) -> dict[str, Any]:
        """The content of `instrument.json`."""
        from .describe import describe_process

        return {
            **describe_process(),
            "groups": self.collectives.groups(),
            "roots": self.units.roots,
            "steps": {"completed": self.steps.completed, "source": self.steps.source},
            "clock": self.clock.document(),
        }
