"""The Nsight Systems reader: nothing private enters a run."""

from __future__ import annotations

import pytest

from gapscope.ingest.nsys_privacy import (
    allowed_settings,
    capture_environment,
    clean_message,
    number_setting,
)
from gapscope.ingest.writer import name_id_of

from .nsys_export import CANARY, STRINGS, Result


def test_no_secret_and_no_path_enters(full: Result) -> None:
    text = full.raw_text()
    assert CANARY not in text
    assert "someone" not in text
    assert "HF_TOKEN" not in text
    for file in full.directory.iterdir():
        assert CANARY.encode() not in file.read_bytes()
    settings = {row["name"]: row["value"] for row in full.rows("environment")}
    assert settings == {"RANK": "3", "WORLD_SIZE": "8", "NCCL_MAX_CTAS": "16"}
    assert full.column("diagnostic", "text") == [
        "7 events were dropped, see <path> with <setting>",
        "environment said <removed>",
    ]
    assert full.column("diagnostic", "ts_ns") == [3, None]


def test_only_referenced_strings_are_named(full: Result) -> None:
    names = {row["name"] for row in full.rows("name")}
    assert not names & {STRINGS[90], STRINGS[91]}
    assert all(row["name_id"] == name_id_of(row["name"]) for row in full.rows("name"))


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("8", True),
        ("Ring,Tree", True),
        ("expandable_segments:True", True),
        ("GPU-1234abcd,GPU-99", True),
        ("MIG-GPU-1234/1/0", True),
        ("x" * 256, True),
        ("x" * 257, False),
        ("/home/someone/file", False),
        ("a:/home/someone", False),
        ("~/file", False),
        ("C:\\Users\\someone", False),
        ("two\nlines", False),
        ("<script>", False),
    ],
)
def test_values_of_allowed_variables(value: str, kept: bool) -> None:
    settings, dropped = allowed_settings({0: {"CUDA_VISIBLE_DEVICES": value, "HOME": "/root"}})
    assert settings == ({"CUDA_VISIBLE_DEVICES": value} if kept else {})
    assert dropped == ([] if kept else ["CUDA_VISIBLE_DEVICES"])


def test_rank_must_be_a_number() -> None:
    rows: list[tuple[str | None, str | None]] = [
        ("PROCESS_0:ENVIRONMENT_VARIABLE", 'RANK="secret words"'),
        ("PROCESS_0:ENVIRONMENT_VARIABLE", 'SLURM_PROCID="12"'),
        ("PROCESS_0:ENVIRONMENT_VARIABLE", "no separator"),
        (None, None),
    ]
    settings, dropped = allowed_settings(capture_environment(rows))
    assert dropped == ["RANK"]
    assert number_setting(settings, ("RANK", "SLURM_PROCID")) == (12, "SLURM_PROCID")


@pytest.mark.parametrize(
    "text",
    [
        "see '/home/some one/log file.txt' now",
        "see /home/someone/log, and ~/someone",
        r"C:\Users\someone\x failed",
        "PATH=/usr/bin:/home/someone set",
        "A_KEY='someone else' given",
        "KEY = someone",
        "http://someone.example/x?q=1",
        "started with LD_PRELOAD=someone.so",
    ],
)
def test_messages_lose_paths_and_settings(text: str) -> None:
    cleaned = clean_message(text, frozenset())
    assert "someone" not in cleaned
    assert "some one" not in cleaned


def test_messages_keep_their_meaning() -> None:
    text = "CUDA tracing: 3 of 5 buffers lost. See --cuda-graph-trace=node to control this."
    assert clean_message(text, frozenset()) == text
