"""What a policy makes of runs whose numbers are known."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest

from gapscope.compare import gate, policy
from gapscope.compare.gate import Finding, Verdict
from gapscope.errors import GapscopeError
from gapscope.render import gate as rendered

from .pairs import compare, made, model, run_of


def _judge(rules, run=None, comparison=None):
    return {one.rule: one for one in gate.judge(rules, run or run_of(), comparison)}


def test_the_example_is_a_policy_with_every_rule_but_one(tmp_path):
    file = tmp_path / "policy.toml"
    file.write_text(policy.EXAMPLE, encoding="utf-8")
    assert list(policy.read(file)) == [key for key in policy.KEYS if "perturbation" not in key]
    file.write_text(policy.EXAMPLE.replace("# max_per", "max_per"), encoding="utf-8")
    assert list(policy.read(file)) == list(policy.KEYS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no rule"),
        ("max_step_ms = ", "is no TOML"),
        ("max_stp_ms = 3", "no rule `max_stp_ms`"),
        ("max_step_ms = -1", "`max_step_ms` is -1"),
        ("max_step_ms = nan", "`max_step_ms` is nan"),
        ("max_step_ms = true", "`max_step_ms` is True"),
        ("min_steps = 2.5", "`min_steps` is 2.5"),
        ("tolerated_limits = 'event_edges'", "`tolerated_limits` is"),
    ],
)
def test_a_policy_that_means_nothing_is_refused(tmp_path, text, said):
    file = tmp_path / "policy.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(GapscopeError) as refused:
        policy.read(file)
    assert (refused.value.slug, refused.value.exit_code) == ("bad-policy", 2)
    assert said in refused.value.message


@pytest.mark.parametrize(
    ("rule", "limit", "measured", "verdict"),
    [
        ("max_step_ms", 0.1, 0.1, Verdict.PASS),
        ("max_step_ms", 0.099, 0.1, Verdict.FAIL),
        # 20 of 100 us, in the first step of 98.
        ("max_exposed_comm_percent", 21, 20.08, Verdict.PASS),
        ("max_exposed_comm_percent", 20, 20.08, Verdict.FAIL),
        ("min_steps", 5, 5, Verdict.PASS),
        ("min_steps", 6, 5, Verdict.FAIL),
    ],
)
def test_limits_of_one_run(rule, limit, measured, verdict):
    finding = _judge({rule: limit})[rule]
    assert finding.measured == pytest.approx(measured, abs=0.01)
    assert finding.verdict is verdict


def test_what_could_be_got_back():
    known = _judge({"max_recoverable_percent": 30}, model())["max_recoverable_percent"]
    assert known.verdict is Verdict.PASS
    assert 5 < known.measured < 30
    less = _judge({"max_recoverable_percent": 5}, model())["max_recoverable_percent"]
    assert less.verdict is Verdict.FAIL
    for run in (run_of(), model(is_provisional=True)):
        unknown = _judge({"max_recoverable_percent": 99}, run)["max_recoverable_percent"]
        assert unknown.verdict is Verdict.UNKNOWN
        assert "no verdict of the model" in unknown.detail


@pytest.mark.parametrize(
    ("a", "b", "limit", "verdict"),
    [
        # 7 us of 100; of the steps one is 2 us shorter.
        ({}, {"longer_by": 7}, 1, Verdict.FAIL),
        ({}, {"longer_by": 7}, 10, Verdict.PASS),
        ({}, {"longer_by": 7}, 7, Verdict.UNKNOWN),
        ({"longer_by": 7}, {}, 0, Verdict.PASS),
        ({"steps": 2}, {"steps": 2, "longer_by": 7}, 1, Verdict.FAIL),
        ({}, {}, 0, Verdict.UNKNOWN),
    ],
)
def test_a_regression_counts_where_all_of_its_interval_does(a, b, limit, verdict):
    comparison = compare(run_of(**a), run_of(**b))
    rule = "max_regression_percent"
    finding = _judge({rule: limit}, run_of(**b), comparison)[rule]
    assert finding.verdict is verdict, finding


def test_a_regression_that_cannot_be_judged_is_unknown():
    rule = "max_regression_percent"
    assert _judge({rule: 5})[rule].detail.startswith("no baseline")
    other = compare(run_of(), run_of(ranks=3))
    assert _judge({rule: 5}, comparison=other)[rule].detail.startswith("Not comparable")
    moved = made()
    moved.con.execute("UPDATE v1.rank SET device_name = 'H100'")
    confounded = compare(run_of(), moved.run())
    finding = _judge({rule: 50}, comparison=confounded)[rule]
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.detail.startswith("GPU differ")


def test_nothing_is_known_of_a_run_without_steps():
    stepless = made()
    stepless.con.execute("DELETE FROM v1.range")
    stepless.con.execute("DELETE FROM v1.gpu_op WHERE op_id > 1")
    rules = {"max_step_ms": 1, "max_exposed_comm_percent": 99, "max_perturbation_percent": 9}
    found = _judge(rules, stepless.run())
    assert {one.verdict for one in found.values()} == {Verdict.UNKNOWN}
    assert {one.measured for one in found.values()} == {None}


@pytest.mark.parametrize(
    ("reference", "verdict"),
    [
        ([0.098], Verdict.PASS),
        ([0.09], Verdict.FAIL),
        # Slower than what the profiler watched: steps of another run, which tell nothing.
        ([0.2], Verdict.UNKNOWN),
        # Seconds.
        ([0.0001], Verdict.UNKNOWN),
    ],
)
def test_steps_without_a_profiler_are_those_of_this_run(reference, verdict):
    run = made()
    run.add("run_option", name="run", value=json.dumps({"reference_step_ms": reference}))
    finding = _judge({"max_perturbation_percent": 5}, run.run())["max_perturbation_percent"]
    assert finding.verdict is verdict, finding
    if verdict is Verdict.UNKNOWN:
        assert finding.detail.startswith("reference_step_ms in [run]: profiled steps of rank 0")


def test_limits_of_a_capture_fail_unless_they_are_tolerated():
    run = made()
    run.con.execute(
        "INSERT INTO v1.source_quality VALUES (0, 'dropped', 'warn', '3 records', 'sums of kernels')"
    )
    run = run.run()
    rule = "tolerated_limits"
    finding = _judge({rule: []}, run)[rule]
    assert finding.verdict is Verdict.FAIL
    assert "dropped forbids sums of kernels" in finding.detail
    names = [row["check_name"] for row in run.rows(gate._LIMITS)]
    assert _judge({rule: names}, run)[rule].verdict is Verdict.PASS


def test_a_tolerated_name_that_is_no_check_is_said():
    rule = "tolerated_limits"
    said = "tolerated, but names no check of this run: sharddevice"
    names = [row["check_name"] for row in run_of().rows(gate._LIMITS)]
    found = _judge({rule: [*names, "shared_device", "sharddevice"]})[rule]
    assert found.verdict is Verdict.PASS
    assert found.detail.endswith(said)
    assert "names no check" not in _judge({rule: names})[rule].detail


FINDINGS = [
    Finding("max_step_ms", Verdict.PASS, 1.0, 2.0, "fine"),
    Finding("max_exposed_comm_percent", Verdict.FAIL, 3.0, 2.0, "100 % of\x1b <it>\nall"),
    Finding("max_recoverable_percent", Verdict.UNKNOWN, None, 2.0, "no verdict"),
]


def test_what_is_unknown_is_no_pass():
    assert gate.overall(FINDINGS) is Verdict.FAIL
    assert gate.overall(FINDINGS[::2]) is Verdict.UNKNOWN
    assert gate.overall(FINDINGS[:1]) is Verdict.PASS


def test_junit_counts_the_unknown_as_errors():
    suite = ET.fromstring(rendered.junit(FINDINGS))
    assert {key: suite.get(key) for key in ("tests", "failures", "errors")} == {
        "tests": "3",
        "failures": "1",
        "errors": "1",
    }
    assert [[child.tag for child in case] for case in suite] == [[], ["failure"], ["error"]]
    assert suite[1][0].get("message").startswith("3, limit 2: 100 % of\\x1b <it>")


def test_github_annotates_what_does_not_pass():
    failed, unknown = rendered.github(FINDINGS).splitlines()
    title = "::error title=gapscope check max_exposed_comm_percent::"
    assert failed == f"{title}3, limit 2: 100 %25 of\\x1b <it>%0Aall"
    assert unknown == "::warning title=gapscope check max_recoverable_percent::unknown: no verdict"
