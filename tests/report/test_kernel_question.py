"""Whether kernels are fast is a question that timing cannot answer: the report says who can."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from gapscope.ingest.pipeline import ingest
from gapscope.render import markdown, text
from gapscope.report.build import build
from gapscope.report.kernel_card import function_name
from gapscope.run import open_run
from tests.ingest.nsys_export import call, full_export, global_pid, kernel, write_sqlite

if TYPE_CHECKING:
    from pathlib import Path

    from gapscope.report.document import Document

US = 1_000
STEP = 1_000 * US
GEMM = "void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<Gemm>>(Params)"


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Document:
    """Five steps of 1 ms, 960 us of each in eight gemms that the host issued long before."""
    tables = full_export()
    for table in list(tables):
        if table.startswith(("CUPTI", "NVTX", "PROFILER", "DIAG", "GPU_M", "TARGET_INFO_GPU_M")):
            del tables[table]
    tables["StringIds"] = [
        {"id": 1, "value": GEMM},
        {"id": 2, "value": "cudaLaunchKernel_v7000"},
        {"id": 3, "value": "void vectorized_elementwise_kernel<4>(int)"},
    ]
    kernels, calls, ranges = [], [], []
    for step in range(5):
        begin = step * STEP
        ranges.append(
            {
                "globalTid": global_pid(7) | 9, "domainId": 0, "text": f"step {step}",
                "textId": None, "start": begin, "end": begin + STEP, "eventType": 59,
            }
        )  # fmt: skip
        for place in range(9):
            number = 100 * step + place + 1
            issued = begin + 5 * US + place * 3 * US
            calls.append(call(issued, issued + 2 * US, correlationId=number))
            start = begin + 10 * US + place * 121 * US
            length = 120 * US if place < 8 else 10 * US
            name = 1 if place < 8 else 3
            kernels.append(kernel(start, start + length, name=name, correlationId=number))
    tables["CUPTI_ACTIVITY_KIND_KERNEL"] = kernels
    tables["CUPTI_ACTIVITY_KIND_RUNTIME"] = calls
    tables["NVTX_EVENTS"] = ranges
    place: Path = tmp_path_factory.mktemp("kernels")
    capture = write_sqlite(place / "rank3.sqlite", tables)
    with open_run(ingest([capture], place / "gapscope.run", workers=1).out) as run:
        return build(run)


def test_the_answer_points_to_nsight_compute(document: Document) -> None:
    said = " ".join(statement.text for statement in document.verdict.statements)
    assert "Compute-bound" in said
    assert "Nsight Compute" in said
    card = document.opportunities[-1]
    assert card.id == "finding-kernels"
    tried = " ".join(card.what_to_try)
    assert (
        "`ncu --set full --kernel-name regex:device_kernel --launch-skip 8 --launch-count 3 "
        "-o kernel`"
    ) in tried


def test_no_number_is_claimed_for_what_was_not_measured(document: Document) -> None:
    card = next(one for one in document.opportunities if one.id == "finding-kernels")
    assert card.ceiling is None
    assert card.modelled is None
    claim = next(one for one in document.claims if one.id == card.mechanism.claim)
    assert claim.status.value == "unverified"
    for rendered in (text.render(document), markdown.render(document)):
        assert not re.search(
            r"(?i)(efficien|utili[sz]|of peak|speed of light)[^.]{0,40}\d+ ?%", rendered
        )
        assert not re.search(
            r"(?i)\d[\d.]* ?% (efficien|utili[sz]|of (the )?(peak|roof))", rendered
        )
        assert "TFLOP" not in rendered


def test_the_share_of_the_step_is_the_known_one(document: Document) -> None:
    card = next(one for one in document.opportunities if one.id == "finding-kernels")
    assert card.time.value == 8 * 120 * US + 10 * US
    assert card.time.n == 5


@pytest.mark.parametrize(
    ("name", "function"),
    [
        (GEMM, "device_kernel"),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT"),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::Meta<4>>(int)",
            "multi_tensor_apply_kernel",
        ),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, (bool)1>(p)", "kernel"),
        ("", "."),
        ("evil`; rm -rf $HOME", ".HOME"),
    ],
)
def test_a_name_is_what_nsight_compute_matches(name: str, function: str) -> None:
    assert function_name(name) == function
