"""Slow path for text that is not quite JSON, as profilers have been seen to write it."""

from __future__ import annotations

import re

# One string (possibly cut off by the end of the text), a bracket, or a float that JSON has no word
# for. Strings are matched first, so nothing inside them is ever taken for structure.
_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)'
STRUCTURE = re.compile(_STRING + rb"|[{}\[\]]", re.DOTALL)
_REPAIRABLE = re.compile(
    _STRING + rb"|[-+]?\b(?:nan(?:\(\w*\))?|inf(?:inity)?)(?![\w.])", re.DOTALL | re.IGNORECASE
)
_SUSPECT = re.compile(rb"[\x00-\x1f\\]")
_CONTROL = re.compile(rb"[\x00-\x1f]")
_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a surrogate pair
    rb"|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb'|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'
    rb"|(?P<bad>\\)"
)


def repair(text: bytes) -> tuple[bytes, int]:
    """The text as valid JSON where that is possible, and how many places were changed.

    NaN and infinities outside strings become null; control characters inside strings become
    spaces, invalid escapes are escaped, lone surrogates and invalid UTF-8 become U+FFFD.
    """
    changes = 0

    def escape(match: re.Match[bytes]) -> bytes:
        nonlocal changes
        if match["lone"]:
            changes += 1
            return b"\\ufffd"
        if match["bad"]:
            changes += 1
            return b"\\\\"
        return match[0]

    def token(match: re.Match[bytes]) -> bytes:
        nonlocal changes
        found = match[0]
        if not found.startswith(b'"'):
            changes += 1
            return b"null"
        if not _SUSPECT.search(found):
            return found
        found, count = _CONTROL.subn(b" ", found)
        changes += count
        return _ESCAPE.sub(escape, found)

    fixed = _REPAIRABLE.sub(token, text)
    try:
        fixed.decode("utf-8")
    except UnicodeDecodeError:
        before = fixed.count("\ufffd".encode())
        fixed = fixed.decode("utf-8", "replace").encode("utf-8")
        changes += fixed.count("\ufffd".encode()) - before
    return fixed, changes
