"""The one error type that reaches a user, and the exit codes of the command line."""

from __future__ import annotations

from typing import ClassVar

EXIT_OK = 0
EXIT_GATE_FAILED = 1
EXIT_COULD_NOT_RUN = 2
EXIT_INCONCLUSIVE = 3


class Stopped(BaseException):  # like KeyboardInterrupt: a wish, no error
    """Ctrl-C, or a signal of a batch system or of a closed terminal, arrived."""

    # The last such signal: DuckDB answers one that arrives in a query with an error of its own.
    number: ClassVar[int | None] = None


class GapscopeError(Exception):
    """A failure that the user can act on.

    `slug` is greppable and stable, `message` says what and where on one line, `hint` is the next
    thing to type or do.
    """

    def __init__(
        self, slug: str, message: str, hint: str = "", exit_code: int = EXIT_COULD_NOT_RUN
    ) -> None:
        super().__init__(message)
        self.slug = slug
        self.message = " ".join(message.split())
        self.hint = " ".join(hint.split())
        self.exit_code = exit_code

    def __reduce__(self) -> tuple[type[GapscopeError], tuple[str, str, str, int]]:
        # Errors cross process boundaries when ranks are ingested in parallel.
        return (type(self), (self.slug, self.message, self.hint, self.exit_code))

    def __str__(self) -> str:
        return f"error[{self.slug}]: {self.message}"
