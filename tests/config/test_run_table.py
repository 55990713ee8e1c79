"""`[run]` of gapscope.toml: what is accepted, and the one line that refuses the rest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gapscope import config
from gapscope.errors import GapscopeError

WHOLE = """
[run]
framework = "megatron-bridge"
framework_revision = "0.2.0"
container = "nemo:25.11"
source = "https://example.org/megatron-bridge"
model = "a mixture of experts"
precision = "bf16"
sequence_length = 4096
micro_batch = 1
global_batch = 512
world_size = 128
tensor_parallel = 2
context_parallel = 1
pipeline_parallel = 8
virtual_pipeline = 4
data_parallel = 8
expert_parallel = 8
expert_tensor_parallel = 1
rank_order = "tp-cp-ep-dp-pp"
cuda_graphs = false
step = "train_step"
steady_steps = "2:6"
reference_step_ms = [29390, 29410.5]
"""


# A product of 8.
SMALL = """
world_size = 16
tensor_parallel = 2
context_parallel = 2
data_parallel = 2
pipeline_parallel = 1
"""


def _read(directory: Path, text: str) -> dict[str, dict[str, object]]:
    file = directory / "gapscope.toml"
    file.write_text(text)
    return config.read(file)


def test_every_key_of_a_run_can_be_declared(tmp_path: Path) -> None:
    table = _read(tmp_path, WHOLE)["run"]
    assert set(table) == set(config.run.KEYS)


def test_nothing_has_to_be_declared(tmp_path: Path) -> None:
    assert _read(tmp_path, "[run]\n") == {"run": {}}


def test_a_table_that_is_a_value_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(GapscopeError, match="`run` must be a table") as refused:
        _read(tmp_path, "run = 3\n")
    assert refused.value.hint == "begin it with `[run]`"
    with pytest.raises(GapscopeError, match="unknown `runs`"):
        _read(tmp_path, "runs = 3\n")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("tensor_paralel = 2", "has no key `tensor_paralel`"),
        ("tensor_parallel = 0", "`tensor_parallel` is 0"),
        ("tensor_parallel = true", "must be a whole number above 0"),
        ("micro_batch = 1.5", "must be a whole number above 0"),
        ('model = " "', "must be text in quotes, not empty"),
        ('precision = "bfloat"', "must be one of fp32"),
        ("cuda_graphs = 1", "must be true or false"),
        ("reference_step_ms = []", "must be a list of numbers above 0"),
        ("reference_step_ms = [1.0, -2.0]", "must be a list of numbers above 0"),
        ("reference_step_ms = [inf]", "must be a list of numbers above 0"),
        ("reference_step_ms = 29390", "must be a list of numbers above 0"),
        ('steady_steps = "5:5"', "must be two step numbers"),
        ('steady_steps = "last three"', "must be two step numbers"),
        ('rank_order = "tp-tp-pp"', "must name dimensions once"),
        ('rank_order = "tp-stage"', "must name dimensions once"),
        ("virtual_pipeline = 2\npipeline_parallel = 1", "needs pipeline_parallel above 1"),
        (
            SMALL,
            "tensor_parallel 2 x context_parallel 2 x data_parallel 2 x pipeline_parallel 1 = 8",
        ),
        (
            "world_size = 12\ntensor_parallel = 8",
            "tensor_parallel 8 = 8 does not divide world_size 12",
        ),
        (
            "world_size = 16\npipeline_parallel = 2\nexpert_parallel = 16",
            "expert_parallel 16 x pipeline_parallel 2 = 32 does not divide world_size 16",
        ),
        (
            "global_batch = 100\nmicro_batch = 4\ndata_parallel = 8",
            "global_batch 100 is no multiple of micro_batch 4 x data_parallel 8",
        ),
    ],
)
def test_what_means_nothing_is_refused_in_one_line(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(GapscopeError) as refused:
        _read(tmp_path, f"[run]\n{line}\n")
    assert refused.value.slug == "bad-config"
    assert re.search(re.escape(said), f"{refused.value} {refused.value.hint}")
    assert "\n" not in str(refused.value)
