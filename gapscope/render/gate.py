"""The findings of `gapscope check` for people, programs and CI systems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from gapscope.compare.gate import Verdict, overall
from gapscope.units import plain

if TYPE_CHECKING:
    from gapscope.compare.gate import Finding


def content(findings: list[Finding]) -> dict[str, Any]:
    """For a JSON document."""
    return {
        "verdict": overall(findings).value,
        "rules": [
            {
                "rule": finding.rule,
                "verdict": finding.verdict.value,
                "measured": finding.measured,
                "limit": finding.limit,
                "detail": finding.detail,
            }
            for finding in findings
        ],
    }


def junit(findings: list[Finding]) -> str:
    """A test a rule. What is unknown is an error: a skipped test would look like a pass."""
    counts = {verdict: sum(one.verdict is verdict for one in findings) for verdict in Verdict}
    suite = ET.Element(
        "testsuite",
        name="gapscope check",
        tests=str(len(findings)),
        failures=str(counts[Verdict.FAIL]),
        errors=str(counts[Verdict.UNKNOWN]),
    )
    for finding in findings:
        case = ET.SubElement(suite, "testcase", classname="gapscope", name=finding.rule)
        if finding.verdict is not Verdict.PASS:
            kind = "failure" if finding.verdict is Verdict.FAIL else "error"
            ET.SubElement(case, kind, message=sentence(finding))
    ET.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode")


def github(findings: list[Finding]) -> str:
    """Annotations of a GitHub workflow: an error a rule that failed, a warning an unknown one."""
    lines = []
    for finding in findings:
        if finding.verdict is Verdict.PASS:
            continue
        kind = "error" if finding.verdict is Verdict.FAIL else "warning"
        text = sentence(finding).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        lines.append(f"::{kind} title=gapscope check {finding.rule}::{text}")
    return "\n".join(lines)


def sentence(finding: Finding) -> str:
    """`17.2, limit 3: ...`."""
    detail = plain(finding.detail)
    if finding.measured is None:
        return f"unknown: {detail}"
    return f"{finding.measured:.5g}, limit {finding.limit:g}: {detail}"
