"""Frames of call stacks as a run keeps them: packages and file names, no path of a user."""

from __future__ import annotations

import re

# Up to a file's name. Directories may hold spaces; brackets, quotes and colons end a path.
_DIRECTORIES = re.compile(r"(?:\b[A-Za-z]:(?=[\\/]))?[^()\[\]\"':;<>]*[\\/]")
# Where a path that says where it is on the disk begins; others are those of packages.
_PLACED = re.compile(r"(?:^|(?<=\s))(?:[A-Za-z]:)?(?:[\\/~]|\.{1,2}[\\/])")
_PACKAGES = re.compile(r".*(?:site-packages|dist-packages|python3\.\d+)[\\/]")


def without_directories(frame: str) -> str:
    """`/home/me/run/train.py(3): main` as `train.py(3): main`; packages keep their own path."""
    return _DIRECTORIES.sub(_kept, frame)


def _kept(found: re.Match[str]) -> str:
    text = found.group()
    placed = _PLACED.search(text)
    if placed is None:
        return text
    before, path = text[: placed.start()], text[placed.start() :]
    inside = _PACKAGES.match(path)
    return before + (path[inside.end() :] if inside else "")
