"""The whole library, driven by a fake libcupti, and its streams read back."""

from __future__ import annotations

import json
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gapscope.ingest.base import ENVIRONMENT_ALLOW_LIST
from tests.tracer.conftest import TRACER, Play, read_stream

VERSIONS = ("12.1", "12.4", "12.6", "12.8", "12.9", "13.0", "13.5")


def meta_of(process: Path) -> dict[str, Any]:
    return json.loads((process / "meta.json").read_text())


def names_of(process: Path) -> dict[int, str]:
    table = read_stream(process / "name.arrows")
    return dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))


@pytest.mark.parametrize("version", VERSIONS)
def test_one_record_of_each_kind(play: Play, version: str):
    played = play("all", version=version)
    assert (played.code, played.stdout, played.stderr) == (7, "", "")
    process = played.process()
    meta = meta_of(process)
    assert meta["state"] == "finished"
    assert meta["cupti_errors"] == []
    lost = {key: count for key, count in meta["loss"].items() if count}
    assert lost == {"ops_without_time": 1, "unmatched_range_ends": 1}

    names = names_of(process)
    (kernel,) = played.table("kernel").to_pylist()
    assert names[kernel["name"]] == "void scale<float>(float*)"
    assert kernel["end_ns"] - kernel["start_ns"] == 100
    sizes = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
    assert [kernel[size] for size in sizes] == [70000, 2, 2, 256, 1, 1]
    assert (kernel["stream"], kernel["channel"], kernel["device"]) == (7, 5, 0)

    calls = played.table("call").to_pylist()
    api = {row["correlation"]: calls[row["call"]] for row in played.table("api").to_pylist()}
    assert names[api[kernel["correlation"]]["name"]] == "cudaLaunchKernel_v7000"
    # Before 12.6 queries cannot be left out, among them CUPTI's own for the kernel's name.
    query = [0] if version in ("12.1", "12.4") else []
    assert sorted(call["return_code"] for call in calls if call["domain"] == 1) == [*query, 700]

    to_device, peer = played.table("memcpy").to_pylist()
    assert (to_device["copy_kind"], to_device["src_kind"], to_device["dst_kind"]) == (1, 2, 3)
    assert (peer["copy_kind"], peer["src_device"], peer["dst_device"]) == (10, 0, 1)
    assert played.table("memset").column("bytes").to_pylist() == [256]
    assert played.table("graph").column("graph").to_pylist() == [3]
    assert played.table("stream").column("priority").to_pylist() == [-5]
    assert played.table("context").column("null_stream").to_pylist() == [7]
    assert played.table("overhead").column("kind").to_pylist() == [6 << 16]
    assert played.table("external").column("external_id").to_pylist() == [77]
    (device,) = played.table("device").to_pylist()
    assert names[device["name"]] == "Fake H200"
    assert names[device["uuid"]] == "00010203-0405-0607-0809-0a0b0c0d0e0f"

    # Sync ids exist from 12.8 on; before that the bytes are not the field's.
    sync_id = 1001 if version in ("12.8", "12.9", "13.0", "13.5") else 0
    assert played.table("event").column("sync_id").to_pylist() == [sync_id]
    wait, context = played.table("sync").to_pylist()
    assert (wait["type"], wait["event"], wait["sync_id"]) == (2, 42, sync_id)
    assert (context["type"], context["sync_id"]) == (4, 0)


def test_quiet_calls_are_filtered_where_cupti_can(play: Play):
    """Of each launch the device is asked for before it, and CUPTI asks for the kernel's name."""
    assert play("steps", "1", version="12.1").table("api").num_rows == 30
    assert play("steps", "1", version="12.6").table("api").num_rows == 10


def test_ranges(play: Play):
    played = play("all")
    names = names_of(played.process())
    rows = [
        (
            names[row["name"]],
            names.get(row["domain"], ""),
            row["kind"],
            row["sequence"],
            row["op_id"],
            row["end_ns"] == -1,
        )
        for row in played.table("range").to_pylist()
    ]
    assert sorted(rows) == [
        ("aten::mul", "", 0, 12, 34, False),
        ("here", "", 2, -1, -1, False),
        ("l\u00e9ger", "", 1, -1, -1, False),
        ("ncclAllReduce", "NCCL", 0, 56, -1, False),
        ("open", "", 0, -1, -1, True),
        ("step 0", "", 0, -1, -1, False),
    ]


def test_ranges_before_cuda_are_kept(play: Play):
    played = play("early")
    assert played.code == 0
    assert "before CUDA" in names_of(played.process()).values()
    assert played.table("range").num_rows == 1


@pytest.mark.parametrize("version", ["12.6", "13.0"])
def test_bytes_a_row(play: Play, version: str):
    played = play("rate", "100000", "1", version=version, GAPSCOPE_TRACE_FLUSH_MS="1000")
    process = played.process()
    for table, limit in (("kernel", 64), ("api", 25)):
        rows = played.table(table).num_rows
        assert rows > 50_000
        assert (process / f"{table}.arrows").stat().st_size / rows <= limit


def test_lz4_frames(play: Play):
    played = play("rate", "100000", "1", GAPSCOPE_TRACE_LZ4="1", GAPSCOPE_TRACE_FLUSH_MS="1000")
    process = played.process()
    for table in ("kernel", "api"):
        file = process / f"{table}.arrows.lz4"
        rows = read_stream(file).num_rows
        assert rows > 50_000
        assert file.stat().st_size / rows < 25


def test_window_between_profiler_start_and_stop(play: Play):
    played = play("window", GAPSCOPE_TRACE_WINDOW="profiler")
    assert played.table("kernel").num_rows == 20
    texts = [names_of(played.process())[i] for i in played.table("range")["name"].to_pylist()]
    assert sorted(set(texts)) == ["aten::mul", "step 0", "step 1"]


def test_steps_open_and_close_the_window(play: Play):
    """Recorded is A <= N < B, and ranges around it with the start that they had."""
    played = play("epoch", "20", GAPSCOPE_TRACE_STEPS="5:8")
    assert (played.code, played.stderr) == (0, "")
    assert played.table("kernel").num_rows == 30
    names = names_of(played.process())
    rows = played.table("range").to_pylist()
    found = [names[row["name"]] for row in rows]
    assert sorted(set(found)) == ["aten::mul", "epoch 3", "step 5", "step 6", "step 7"]
    # Names of what was never recorded take no room.
    assert not {"step 0", "step 4", "step 8"} & set(names.values())
    (epoch,) = (row for row in rows if names[row["name"]] == "epoch 3")
    (first,) = (row for row in rows if names[row["name"]] == "step 5")
    before = first["start_ns"] - epoch["start_ns"]
    # Five steps of ten launches lie between them.
    assert before > (first["end_ns"] - first["start_ns"])
    assert epoch["end_ns"] == -1
    options = meta_of(played.process())["options"]
    assert (options["window"], options["first_step"], options["end_step"]) == ("steps", 5, 8)
    # What opening took is told, on the thread and inside the step that opened it.
    (opening,) = (row for row in played.table("overhead").to_pylist() if row["kind"] == 1 << 31)
    assert first["start_ns"] <= opening["start_ns"] <= opening["end_ns"] < first["end_ns"]
    assert opening["thread"] == first["thread"]


@pytest.mark.parametrize(("steps", "kernels"), [("18:", 20), ("0:1", 10), ("5", 200)])
def test_step_windows_at_the_ends(play: Play, steps: str, kernels: int):
    """Without an end it is that of the process; what is no window is none."""
    assert play("steps", "20", GAPSCOPE_TRACE_STEPS=steps).table("kernel").num_rows == kernels


def test_step_that_began_before_cuda_opens_the_window(play: Play):
    played = play("early-step", GAPSCOPE_TRACE_STEPS="5:8")
    assert played.table("kernel").num_rows == 31
    assert "step 5" in names_of(played.process()).values()


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"GAPSCOPE_TRACE_STEPS": "50:60"}, "no NVTX range named like `step 50` began"),
        ({"GAPSCOPE_TRACE_WINDOW": "signal"}, "no SIGUSR2 arrived"),
        ({"GAPSCOPE_TRACE_WINDOW": "profiler"}, "the program did not call cudaProfilerStart"),
    ],
)
def test_a_window_that_never_opens_says_so(play: Play, more: dict[str, str], reason: str):
    played = play("steps", "5", **more)
    assert reason in meta_of(played.process())["reason"]
    assert not (played.process() / "kernel.arrows").exists()
    assert not (played.process() / "range.arrows").exists()


def test_signals_open_and_close_the_window(play: Play):
    """The first opens, the next closes, a third does nothing; a handler that was there still runs."""
    played = play("signals", GAPSCOPE_TRACE_WINDOW="signal")
    assert (played.code, played.stdout, played.stderr) == (0, "3\n", "")
    assert played.table("kernel").num_rows == 20
    names = names_of(played.process())
    found = [names[row] for row in played.table("range")["name"].to_pylist()]
    assert sorted(set(found)) == ["aten::mul", "epoch 3", "step 0", "step 1"]


def test_signals_mean_what_they_meant_where_nobody_asked(play: Play):
    # 12 is SIGUSR2: the child dies of it, as does a program that is traced without such a window.
    assert play("signal-child", GAPSCOPE_TRACE_WINDOW="signal").code == signal.SIGUSR2
    assert play("signal-child").code == signal.SIGUSR2


def test_duration_ends_recording(play: Play):
    played = play("_exit", "400", GAPSCOPE_TRACE_DURATION_MS="150")
    assert played.table("kernel").num_rows == 1000


@pytest.mark.parametrize(
    ("scenario", "code"), [("kill", -signal.SIGKILL), ("abort", -signal.SIGABRT), ("_exit", 5)]
)
def test_sudden_ends_leave_whole_batches(play: Play, scenario: str, code: int):
    """What was flushed before the end is all there: the first of two hundred steps' halves."""
    played = play(scenario, "500")
    assert (played.code, played.stderr) == (code, "")
    process = played.process()
    assert meta_of(process)["state"] == "tracing"
    kernel = played.table("kernel")
    assert 1000 <= kernel.num_rows <= 2000
    assert set(kernel["name"].to_pylist()) <= set(names_of(process))
    assert played.table("range").num_rows >= 1000


def test_child_of_fork_writes_nothing(play: Play):
    played = play("fork")
    assert played.code == 4
    assert played.table("kernel").num_rows == 200
    assert "of the child" not in names_of(played.process()).values()


def test_child_may_be_the_one_with_cuda(play: Play):
    played = play("late-fork")
    assert played.code == 3
    assert played.table("kernel").num_rows == 20
    assert "of the parent" not in names_of(played.process()).values()


def test_exec_is_a_process_of_its_own(play: Play):
    played = play("exec")
    assert played.code == 0
    processes = sorted(played.directory.iterdir())
    assert [read_stream(one / "kernel.arrows").num_rows for one in processes] == [100, 200]


def test_threads(play: Play):
    played = play("threads")
    assert played.table("kernel").num_rows == 4 * 200 * 10
    assert played.table("range").num_rows == 4 * 200 * 11
    tids = played.table("thread")["tid"].to_pylist()
    assert len(tids) == len(set(tids)) == 4
    # Ranges and calls of a thread bear the same number.
    assert set(played.table("range")["thread"].to_pylist()) == set(
        played.table("api")["thread"].to_pylist()
    )


@pytest.mark.parametrize(
    ("version", "holder"), [("13.0", "CUPTI for Kineto"), ("12.6", "another tool")]
)
def test_another_subscriber_is_left_alone(play: Play, version: str, holder: str):
    played = play("all", version=version, FAKE_CUPTI_HOLDER="CUPTI for Kineto")
    assert (played.code, played.stdout, played.stderr) == (7, "", "")
    meta = meta_of(played.process())
    assert meta["state"] == "standing back"
    assert holder in meta["reason"]
    assert not (played.process() / "kernel.arrows").exists()
    # What the host says needs no CUPTI.
    assert played.table("range").num_rows == 6


@pytest.mark.parametrize("version", ["12.6", "13.0"])
def test_another_client_takes_over_the_buffers(play: Play, version: str):
    """What came before is kept, and the end says that records went elsewhere."""
    played = play("taken-over", "300", version=version)
    assert (played.code, played.stdout, played.stderr) == (0, "", "")
    assert 50 <= played.table("kernel").num_rows <= 60
    assert played.table("range").num_rows == 56 * 11
    assert meta_of(played.process())["loss"]["buffers_taken_over"] == 1


@pytest.mark.parametrize("version", ["12.6", "13.0"])
def test_another_clients_buffer_is_not_ours_to_free(play: Play, version: str):
    played = play("taken-before", version=version)
    assert (played.code, played.stdout, played.stderr) == (0, "", "")
    loss = meta_of(played.process())["loss"]
    assert (loss["buffers_taken_over"], loss["buffers_discarded"]) == (0, 0)
    assert played.table("range").num_rows == 5 * 11


def test_several_devices_in_one_process(play: Play):
    played = play("devices")
    names = names_of(played.process())
    devices = {row["device"]: names[row["uuid"]] for row in played.table("device").to_pylist()}
    assert devices == {n: f"00000000-0000-0000-0000-{n:012x}" for n in (0, 1, 3)}
    contexts = {row["context"]: row["device"] for row in played.table("context").to_pylist()}
    assert contexts == {1: 0, 2: 1, 4: 3}
    kernels = Counter((row["device"], row["context"]) for row in played.table("kernel").to_pylist())
    assert kernels == {(0, 1): 10, (1, 2): 20, (3, 4): 40}


def test_workers_of_a_traced_process(play: Play):
    played = play("workers")
    assert (played.code, played.stdout, played.stderr) == (0, "", "")
    # One process, and nothing but what it did itself.
    assert played.table("kernel").num_rows == 8 * 100
    assert played.table("range").num_rows == 8 * 110
    assert "load" not in names_of(played.process()).values()


def test_a_kind_that_cupti_refuses_is_noted(play: Play):
    played = play("all", FAKE_CUPTI_REFUSES="38")
    assert played.code == 7
    assert meta_of(played.process())["cupti_errors"] == ["cuptiActivityEnable: 21"]
    assert not (played.process() / "sync.arrows").exists()
    assert played.table("kernel").num_rows == 1


def test_full_disk(play: Play):
    """Every row is either readable or counted as lost, and the application does not notice."""
    played = play("full", "300000")
    assert (played.code, played.stderr) == (6, "")
    done = int(re.match(r"\d+", played.stdout)[0])
    lost = meta_of(played.process())["loss"]["rows_unwritten"]
    kept = played.table("kernel").num_rows + played.table("api").num_rows
    assert lost > 0
    # The clock's one row may be among the lost.
    assert kept + lost - 2 * done in (0, 1)


def test_stalled_disk(play: Play):
    """While the disk does not answer the application goes on; what finds no buffer is counted."""
    played = play("rate", "300000", "2", SLOW_DISK_MS="700")
    assert (played.code, played.stderr) == (0, "")
    done = int(re.match(r"\d+", played.stdout)[0])
    loss = meta_of(played.process())["loss"]
    kept = played.table("kernel").num_rows + played.table("api").num_rows
    assert loss["buffers_refused"] > 0
    assert loss["rows_unwritten"] == 0
    assert kept + loss["records_dropped"] == 2 * done


def test_disk_that_never_answers_does_not_hold_the_process(play: Play):
    """The end waits for ten seconds, and no longer."""
    played = play("steps", "3", SLOW_DISK_MS="60000")
    assert (played.code, played.stdout, played.stderr) == (0, "", "")


@pytest.mark.parametrize("directory", ["/proc/self/gapscope", "/sys/gapscope", "/dev/null/x"])
def test_directory_that_cannot_be_made(play: Play, directory: str):
    played = play("all", GAPSCOPE_TRACE_DIR=directory)
    assert (played.code, played.stdout, played.stderr) == (7, "", "")
    assert not Path(directory).exists()


@pytest.mark.parametrize(
    ("more", "variable", "rank", "world"),
    [
        ({"RANK": "2", "WORLD_SIZE": "4", "SLURM_PROCID": "9"}, "RANK", 2, 4),
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}, "SLURM_PROCID", 3, 8),
        (
            {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "6"},
            *("OMPI_COMM_WORLD_RANK", 5, 6),
        ),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "PMI_RANK", 0, 2),
        ({"RANK": "two", "PMI_RANK": "1"}, "PMI_RANK", 1, None),
        ({"RANK": "-1"}, None, None, None),
        ({"RANK": "99999999999999999999"}, None, None, None),
        ({}, None, None, None),
    ],
)
def test_who_the_process_is(
    play: Play, more: dict[str, str], variable: str | None, rank: int | None, world: int | None
):
    played = play("steps", "1", **more)
    stem = "process-" if rank is None else f"rank-{rank}-"
    assert played.process().name.startswith(stem)
    meta = meta_of(played.process())
    assert (meta.get("rank_variable"), meta.get("rank"), meta.get("world_size")) == (
        variable,
        rank,
        world,
    )


def test_read_only_directory(play: Play, tmp_path: Path):
    place = tmp_path / "file"
    place.write_text("")
    played = play("all", GAPSCOPE_TRACE_DIR=str(place / "below"))
    assert (played.code, played.stdout, played.stderr) == (7, "", "")
    assert place.read_text() == ""


def test_too_few_buffers_are_counted(play: Play):
    more = {"GAPSCOPE_TRACE_BUFFERS": "1", "GAPSCOPE_TRACE_BUFFER_KIB": "4"}
    played = play("threads", **more)
    assert played.code == 0
    loss = meta_of(played.process())["loss"]
    kept = played.table("kernel").num_rows + played.table("api").num_rows
    assert loss["buffers_refused"] > 0
    assert kept + loss["records_dropped"] == 2 * 8000
    # Before 12.9 CUPTI takes no refusal: it gets memory, whose content is thrown away.
    assert play("threads", version="12.8", **more).code == 0


def test_without_a_directory_the_library_is_inert(play: Play, tmp_path: Path):
    played = play("all", GAPSCOPE_TRACE_DIR="")
    assert (played.code, played.stdout, played.stderr) == (7, "", "")
    assert list(tmp_path.iterdir()) == []


def test_rank_and_environment(play: Play):
    played = play(
        "steps",
        "1",
        SLURM_PROCID="3",
        SLURM_NTASKS="8",
        CUDA_DEVICE_MAX_CONNECTIONS='8"',
        SECRET_TOKEN="canary",  # noqa: S106 -- planted
    )
    assert played.process().name.startswith("rank-3-")
    meta = meta_of(played.process())
    assert (meta["rank"], meta["rank_variable"], meta["world_size"]) == (3, "SLURM_PROCID", 8)
    assert meta["environment"] == {
        "SLURM_PROCID": "3",
        "SLURM_NTASKS": "8",
        "CUDA_DEVICE_MAX_CONNECTIONS": '8"',
    }
    assert "canary" not in (played.process() / "meta.json").read_text()


def test_null_sink_writes_metadata_only(play: Play):
    played = play("steps", "5", GAPSCOPE_TRACE_SINK="null")
    assert [file.name for file in played.process().iterdir()] == ["meta.json"]
    assert meta_of(played.process())["cost"]["records"] == 100


def test_allow_list_is_the_readers():
    text = (TRACER / "src" / "metadata.cc").read_text()
    body = re.search(r"kAllowedVariables\[\] = \{(.*?)\};", text, re.DOTALL)[1]
    assert set(re.findall(r'"(\w+)"', body)) == ENVIRONMENT_ALLOW_LIST


def test_streams_are_what_pyarrow_calls_valid(play: Play):
    played = play("steps", "300", GAPSCOPE_TRACE_FLUSH_MS="10")
    with pa.OSFile(str(played.process() / "kernel.arrows"), "rb") as file:
        batches = list(pa.ipc.open_stream(file))
    assert sum(batch.num_rows for batch in batches) == 3000
    assert all(batch.num_rows for batch in batches)
