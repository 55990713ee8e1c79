"""Take paths and host names out of text before it leaves the machine.

A run holds no command line and no environment beyond the allow-list, so `cmdline` finds nothing
to remove; paths and hosts can stand in range texts that a person wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gapscope.errors import GapscopeError

KINDS = ("paths", "hosts", "cmdline")

# Works in Python's engine and in RE2, which DuckDB uses: an absolute path of two or more parts,
# of Unix or Windows, and the home folder. Template arguments and `a/b` are no paths.
PATH_PATTERN = r"(^|[\s\"'=(\[,;:])((?:~|[A-Za-z]:)?(?:[/\\][\w.+@%-]+){2,}[/\\]?)"
PATH_REPLACEMENT = "<path>"

_PATH = re.compile(PATH_PATTERN)


def parse(text: str | None) -> frozenset[str]:
    """`paths,hosts` as a set; GapscopeError for anything else."""
    kinds = frozenset(part.strip() for part in (text or "").split(",") if part.strip())
    unknown = sorted(kinds.difference(KINDS))
    if unknown:
        raise GapscopeError(
            "usage", f"`--redact {unknown[0]}` is unknown", f"use any of {','.join(KINDS)}"
        )
    return kinds


class Redactor:
    """Replaces text in Python, and gives the SQL expression that replaces it in DuckDB."""

    def __init__(self, kinds: Iterable[str], hostnames: Iterable[str | None]) -> None:
        self.kinds = frozenset(kinds)
        known = sorted({name for name in hostnames if name})
        # Longest first: `node1` is a part of `node12`.
        hosts = {name: f"host-{number}" for number, name in enumerate(known)}
        self._hosts = dict(sorted(hosts.items(), key=lambda item: (-len(item[0]), item[0])))

    def text(self, value: str) -> str:
        """The value without what is to be redacted."""
        if "hosts" in self.kinds:
            for host, replacement in self._hosts.items():
                value = value.replace(host, replacement)
        if "paths" in self.kinds:
            value = _PATH.sub(rf"\1{PATH_REPLACEMENT}", value)
        return value

    def source(self, path: str | None, rank: int) -> str | None:
        """The path of a rank's capture, or a name that says nothing."""
        return f"capture-{rank}" if path is not None and "paths" in self.kinds else path

    def sql(self, relation: str, column: str) -> str:
        """The expression that does the same to a VARCHAR column of a relation."""
        quoted = f'"{column}"'
        if "paths" in self.kinds and column == "source_path":
            # Captures of metrics are those of no rank.
            whose = "'metrics'" if relation == "captured_metric" else "rank"
            return f"CASE WHEN {quoted} IS NOT NULL THEN 'capture-' || {whose} END"
        expression = quoted
        if "hosts" in self.kinds:
            for host, replacement in self._hosts.items():
                expression = f"replace({expression}, {_literal(host)}, '{replacement}')"
        # Rule patterns and classes are ours.
        if "paths" in self.kinds and relation not in ("kernel_rule", "rule_share"):
            pattern = _literal(PATH_PATTERN)
            expression = f"regexp_replace({expression}, {pattern}, '\\1{PATH_REPLACEMENT}', 'g')"
        return expression


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
