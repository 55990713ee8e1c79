"""Captures with secrets and with markup in every text: nothing leaks, text stays text."""

from __future__ import annotations

import gzip
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gapscope.cli.app import run as gapscope
from tests.hostile.captures import Json, Rows, kineto, nsys, write_kineto, write_nsys

CANARY = "canary-do-not-leak-9c41"


def poisoned_nsys() -> Rows:
    tables = nsys()
    tables["StringIds"] += [
        {"id": 50, "value": f"HF_TOKEN={CANARY}"},
        {"id": 51, "value": f"/home/{CANARY}/train.py"},
        {"id": 52, "value": f"python train.py --key {CANARY}"},
    ]
    tables["META_DATA_CAPTURE"] += [
        {"name": "PROCESS_0:COMMAND", "value": f"/home/{CANARY}/python"},
        {"name": "PROCESS_0:COMMAND_ARGUMENT", "value": f"--key={CANARY}"},
        {"name": "PROCESS_0:WORKING_DIRECTORY", "value": f"/home/{CANARY}"},
        {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": f'HF_TOKEN="{CANARY}"'},
        {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": f'{CANARY}="1"'},
        {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": f'NCCL_ALGO="/x/{CANARY}"'},
        {"name": f"{CANARY}", "value": CANARY},
    ]
    tables["TARGET_INFO_SYSTEM_ENV"] = [
        {"name": "Hostname", "value": "node5"},
        {"name": "DeviceEnvironment", "value": f"HF_TOKEN={CANARY};LANG=C"},
        {"name": f"X{CANARY}", "value": CANARY},
    ]
    tables["PROCESSES"] = [{"globalPid": 1, "pid": 7, "name": f"/home/{CANARY}/python"}]
    tables["DIAGNOSTIC_EVENT"] = [
        {"timestamp": 3, "timestampType": 1, "source": 1, "severity": 2, "text": text}
        for text in (
            f"7 events were dropped, see /home/{CANARY}/x.log with TOKEN={CANARY}",
            f"the target said {CANARY}",
        )
    ]
    return tables


def poisoned_kineto() -> Json:
    trace = kineto(1)
    trace["traceName"] = f"/home/{CANARY}/trace.json"
    trace["metadata"] = {"key": CANARY, CANARY: 1}
    trace["environment"] = {"HF_TOKEN": CANARY}
    trace[CANARY] = CANARY
    trace["traceEvents"] += [
        {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": f"python --key {CANARY}"}},
        {"ph": "M", "name": "process_labels", "pid": 7, "args": {"labels": CANARY}},
        {"ph": "M", "name": "thread_name", "pid": 7, "tid": 8, "args": {"name": CANARY}},
        {"ph": "i", "name": f"note {CANARY}", "pid": 7, "tid": 8, "ts": 1, "s": "g"},
        {"ph": "C", "name": CANARY, "pid": 7, "ts": 1, "args": {CANARY: 1}},
    ]
    trace["traceEvents"][1]["args"] = {"Call stack": CANARY, "Concrete Inputs": [CANARY]}
    return trace


def outputs(source: Path, place: Path, capfd: pytest.CaptureFixture[str]) -> dict[str, bytes]:
    """Every byte that the tool writes: the run's files, unpacked, all outputs and all talk."""
    run = place / "out.run"
    report = [f"report.{suffix}" for suffix in ("html", "md", "json", "txt")]
    commands = [
        ["ingest", str(source), "-o", str(run), "--workers", "1"],
        *(["report", str(run), "-o", str(place / name)] for name in report),
        ["report", str(run), "--summary"],
        ["export", str(run), "--to", "perfetto", "-o", str(place / "trace.json.gz")],
        ["steps", str(run)], ["steps", str(run), "--candidates"], ["doctor", str(run)],
        ["sql", str(run), "-c", "FROM name; FROM rank; FROM process_group; FROM capture_quality"],
        ["sql", str(run), "--format", "md", "-c", "FROM name; FROM rank; FROM range"],
    ]  # fmt: skip
    found = {}
    for command in commands:
        code = gapscope(command)
        said = capfd.readouterr()
        assert code in (0, 1, 3), (command, said)
        found[f"stdout of {' '.join(command[:1] + command[2:])}"] = said.out.encode()
        found[f"stderr of {' '.join(command[:1] + command[2:])}"] = said.err.encode()
    for file in sorted(place.rglob("*")):
        if not file.is_file() or file == source:
            continue
        content = file.read_bytes()
        if file.suffix == ".parquet":
            table = pq.read_table(file, partitioning=None)
            texts = [c for c in table.columns if pa.types.is_string(c.type)]
            content += "\n".join(str(v) for c in texts for v in c.unique().to_pylist()).encode()
        elif file.suffix == ".gz":
            content = gzip.decompress(content)
        elif file.suffix == ".duckdb":
            content += everything_in(file)
        found[str(file.relative_to(place))] = content
    return found


def everything_in(database: Path) -> bytes:
    import duckdb

    with duckdb.connect(str(database), read_only=True) as con:
        tables = con.execute("SELECT schema_name, table_name FROM duckdb_tables()").fetchall()
        return b"\n".join(
            str(con.execute(f'FROM "{schema}"."{name}"').fetchall()).encode()
            for schema, name in tables
        )


@pytest.mark.parametrize("form", ["nsys", "kineto"])
def test_no_secret_leaves_the_capture(
    tmp_path: Path, form: str, capfd: pytest.CaptureFixture[str]
) -> None:
    if form == "nsys":
        source = write_nsys(tmp_path / "t.sqlite", poisoned_nsys())
    else:
        source = write_kineto(tmp_path / "t.json", poisoned_kineto())
    for where, content in outputs(source, tmp_path, capfd).items():
        assert CANARY.encode() not in content, where


# --- markup -------------------------------------------------------------------------------------

MARKUP = "</script><script>alert(1)</script><img src=x onerror=alert(1)>|a`b`*c*{{7*7}}{% if %}\x1b[31m\x9b2J\x07\u202e"
MARK = "x"


def hostile_kineto() -> Json:
    trace = kineto(0, steps=4)
    for event in trace["traceEvents"]:
        if event.get("cat") in ("kernel", "cpu_op", "cuda_runtime"):
            event["name"] += MARKUP
    for step in range(4):
        trace["traceEvents"].append(
            {"ph": "X", "cat": "kernel", "name": f"ncclDevKernel_AllReduce{MARKUP}", "pid": 0, "tid": 9,
             "ts": 1_030 + 100 * step, "dur": 20,
             "args": {"correlation": 90 + step, "device": 0, "stream": 9, "context": 1,
                      "Collective name": MARKUP, "Process Group Name": MARKUP,
                      "Process Group Description": MARKUP, "Process Group Ranks": MARKUP,
                      "dtype": MARKUP, "Group size": 2}}
        )  # fmt: skip
    trace["deviceProperties"][0]["name"] = MARKUP
    trace["distributedInfo"] |= {
        "backend": MARKUP,
        "nccl_version": MARKUP,
        "pg_config": [{"pg_name": MARKUP, "pg_desc": MARKUP, "backend_config": MARKUP,
                       "pg_size": 2, "ranks": [0, 1]}],
    }  # fmt: skip
    trace["traceEvents"] += [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": MARKUP,
            "pid": 7,
            "tid": 8,
            "ts": 1_000,
            "dur": 400,
        }
    ]
    return trace


def hostile_nsys() -> Rows:
    tables = nsys(0, steps=4)
    tables["StringIds"] = [
        {"id": row["id"], "value": row["value"] + MARKUP} for row in tables["StringIds"]
    ]
    for row in tables["NVTX_EVENTS"]:
        row["text"] = MARKUP + row["text"]
    tables["TARGET_INFO_SYSTEM_ENV"] = [{"name": "Hostname", "value": MARKUP}]
    tables["TARGET_INFO_GPU"] = [{"id": 0, "name": MARKUP, "uuid": MARKUP}]
    tables["TARGET_INFO_CUDA_DEVICE"] = [{"gpuId": 0, "cudaId": 0, "pid": 7}]
    tables["META_DATA_EXPORT"] = [{"name": "EXPORT_PRODUCT_VERSION", "value": MARKUP}]
    return tables


class Elements(HTMLParser):
    """Elements that a page has, and the text of its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.script = False
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")
        self.script = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self.script = False

    def handle_data(self, data: str) -> None:
        if self.script:
            self.scripts[-1] += data


def check_html(text: str) -> None:
    page = Elements()
    page.feed(text)
    page.close()
    assert not [tag for tag, attributes in page.tags if "onerror" in attributes]
    assert not [a for tag, a in page.tags if tag == "img" and a.get("src") == "x"]
    assert "alert(1)" not in [script.strip() for script in page.scripts]
    assert "alert(1)" in text  # the name is there, as text


def check_markdown(text: str) -> None:
    fence = False
    table: int | None = None
    for line in text.splitlines():
        fence ^= line.startswith("```")
        if fence:
            continue
        in_code = line.split("`")
        outside = "".join(in_code[::2]) if len(in_code) % 2 else line
        for tag in ("<script", "</script", "<img"):
            assert tag not in outside.replace("\\<", ""), line
        cells = line.replace("\\|", "").count("|")
        if line.startswith("|"):
            table = cells if table is None else table
            assert cells == table, line
        else:
            table = None


@pytest.mark.parametrize("form", ["nsys", "kineto"])
def test_markup_stays_text(tmp_path: Path, form: str, capfd: pytest.CaptureFixture[str]) -> None:
    name = "<img src=x onerror=alert(1)>\x1b[31m{{7*7}}"
    source: Any
    if form == "nsys":
        source = write_nsys(tmp_path / f"{name}.sqlite", hostile_nsys())
    else:
        source = write_kineto(tmp_path / f"{name}.json", hostile_kineto())
    found = outputs(source, tmp_path, capfd)
    check_html(found["report.html"].decode())
    check_markdown(found["report.md"].decode())
    json.loads(found["report.json"])
    json.loads(found["trace.json.gz"])
    for where, content in found.items():
        if where.startswith(("stdout", "stderr")) or where.endswith((".md", ".txt")):
            text = content.decode()
            assert "alert(49)" not in text
            for steering in ("\x1b", "\x9b", "\x07", "\u202e"):
                assert steering not in text, where
