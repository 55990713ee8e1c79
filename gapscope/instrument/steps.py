"""Steps of training: ranges `step N` that follow each other without a gap.

A step ends where the first optimizer that was seen has stepped, or where the program says so.
"""

from __future__ import annotations

import weakref
from typing import Any

from .guard import guarded
from .voice import Voice


class Steps:
    """Opens and closes the ranges."""

    def __init__(self, voice: Voice) -> None:
        self._voice = voice
        self.completed = 0
        self.source: str | None = None
        self._open: int | None = None
        self._optimizer: weakref.ref[Any] | None = None
        self._update: int | None = None

    def begin(self) -> None:
        """The first step begins with the first forward."""
        if self._open is None and self.source is None:
            self.source = "optimizer"
            self._start()

    def explicit(self) -> None:
        """The program's own mark. A range that an optimizer would have ended stays open."""
        if self.source == "program":
            self._end()
        else:
            self.source = "program"
        self._start()

    @guarded
    def follow_optimizers(self) -> None:
        """Be told of every optimizer's steps; their ranges bear torch's own label."""
        from torch.optim import optimizer

        optimizer.register_optimizer_step_pre_hook(self._before)
        optimizer.register_optimizer_step_post_hook(self._after)

    def _before(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        import torch

        # A compiled step must not find our calls in its graph.
        if not torch.compiler.is_compiling():
            self._update_begins(optimizer)

    def _after(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        import torch

        if not torch.compiler.is_compiling():
            self._update_ends(optimizer)

    @guarded
    def _update_begins(self, optimizer: Any) -> None:
        # An update that raised never ended.
        self._update = self._voice.start(f"Optimizer.step#{type(optimizer).__name__}.step")

    @guarded
    def _update_ends(self, optimizer: Any) -> None:
        self._voice.end(self._update)
        self._update = None
        if self.source != "optimizer":
            return
        if self._optimizer is None or self._optimizer() is None:
            self._optimizer = weakref.ref(optimizer)
        if self._optimizer() is optimizer:
            self._end()
            self._start()

    def _start(self) -> None:
        self._open = self._voice.start(f"step {self.completed}")

    def _end(self) -> None:
        self._voice.end(self._open)
        self.completed += 1
