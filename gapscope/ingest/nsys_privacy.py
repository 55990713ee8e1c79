"""What of an export's environment and messages may enter a run.

An export holds the whole environment of the profiled process, its command line and user paths.
Only allow-listed settings with plain values pass; messages pass with paths and settings removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gapscope.ingest.base import (
    ENVIRONMENT_ALLOW_LIST,
    RANK_VARIABLES,
    WORLD_SIZE_VARIABLES,
)

MAX_VALUE = 256
MAX_MESSAGE = 1000
# Shorter environment values ("1", "true", "en_US") occur in messages by chance.
MIN_SECRET = 8

_VARIABLE = re.compile(r"PROCESS_(\d+):ENVIRONMENT_VARIABLE")
_NUMBER = re.compile(r"\d{1,9}")
_PLAIN = re.compile(r"[\w .,:;+=@^%*()\[\]-]*(?:/[\w.,:/-]*)*", re.ASCII)
_PATH_VALUE = re.compile(r"(?:^|[\s,:;=])(?:[/~\\]|\w:[/\\])")
_QUOTED_PATH = re.compile(r"""(["'])[^"'\n]*[/\\][^"'\n]*\1""")
_PATH = re.compile(r"""[^\s"'`()<>\[\],;]*[/\\][^\s"'`()<>\[\],;]*""")
_SETTING = re.compile(r"""(?<![\w-])[A-Za-z_]\w*(?:=|\s+=\s+)(?:"[^"]*"|'[^']*'|[^\s,;)]*)""")
_REMOVED_TWICE = re.compile(r"(?:<removed>|<path>){2,}")

Environment = dict[str, str]


def capture_environment(
    rows: Iterable[tuple[str | None, str | None]],
) -> dict[int, Environment]:
    """Environment of each launched process from META_DATA_CAPTURE rows. Never to be stored."""
    result: dict[int, Environment] = {}
    for key, value in rows:
        match = _VARIABLE.fullmatch(key or "")
        if match is None:
            continue
        name, separator, text = (value or "").partition("=")
        if separator:
            if len(text) >= 2 and text[0] == text[-1] == '"':
                text = text[1:-1]
            result.setdefault(int(match[1]), {})[name] = text
    return result


def allowed_settings(
    environments: dict[int, Environment],
) -> tuple[Environment, list[str]]:
    """Allow-listed settings that all launched processes share, and the names of dropped ones."""
    kept: Environment = {}
    dropped: list[str] = []
    for name in sorted(ENVIRONMENT_ALLOW_LIST):
        values = {env[name] for env in environments.values() if name in env}
        if not values:
            continue
        value = values.pop()
        if not values and _is_plain(name, value):
            kept[name] = value
        else:
            dropped.append(name)
    return kept, dropped


def number_setting(settings: Environment, names: Iterable[str]) -> tuple[int, str] | None:
    """First of the variables that holds a number: value and variable."""
    for name in names:
        if name in settings and _NUMBER.fullmatch(settings[name]):
            return int(settings[name]), name
    return None


def secrets_of(environments: dict[int, Environment], device_environment: str) -> frozenset[str]:
    """Environment values that must not show up in a message."""
    values = [value for env in environments.values() for value in env.values()]
    values += [part.partition("=")[2] for part in device_environment.split(";")]
    return frozenset(value for value in values if len(value) >= MIN_SECRET)


def clean_message(text: str, secrets: frozenset[str]) -> str:
    """A tool message without paths, settings and environment values."""
    text = text[: 4 * MAX_MESSAGE]
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "<removed>")
    text = _QUOTED_PATH.sub("<path>", text)
    text = _SETTING.sub("<setting>", text)
    text = _PATH.sub("<path>", text)
    # A path that begins with an environment value (HOME) is one path.
    text = _REMOVED_TWICE.sub("<path>", text)
    return " ".join(text.split())[:MAX_MESSAGE]


def _is_plain(name: str, value: str) -> bool:
    if name in RANK_VARIABLES or name in WORLD_SIZE_VARIABLES:
        return _NUMBER.fullmatch(value) is not None
    if len(value) > MAX_VALUE or _PATH_VALUE.search(value):
        return False
    return _PLAIN.fullmatch(value) is not None
