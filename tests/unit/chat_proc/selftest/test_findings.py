"""Findings: an attempt without a result counts as not held."""

import json

from chat_proc.selftest.trials import (
    BatteryReport,
    Finding,
    complete,
    count_by_group,
    find_for,
    render_lines,
    render_report,
    render_table,
)

HELD, MISSED = Finding("network", "connect", True, "EPERM"), Finding("limits", "fork", False, "it succeeded")
REPORT = BatteryReport("bubblewrap", (HELD, MISSED), 100.0, 2.5)


def test_an_unreported_attempt_counts_as_not_held():
    found = complete([("network", "connect"), ("network", "send")], [HELD], "killed")

    assert found == (HELD, Finding("network", "send", False, "no answer: killed", answered=False))


def test_a_battery_holds_only_when_all_of_it_did():
    assert not REPORT.holds
    assert not BatteryReport("bubblewrap", (), 0, 0).holds
    assert BatteryReport("bubblewrap", (HELD,), 0, 0).holds
    assert (REPORT.held, REPORT.total, REPORT.missed()) == (1, 2, (MISSED,))


def test_a_problem_makes_a_finding_that_has_not_held():
    assert find_for("a", "b", "", "proof") == Finding("a", "b", True, "proof")
    assert find_for("a", "b", "it was delivered", "proof") == Finding("a", "b", False, "it was delivered")


def test_programs_read_one_line_for_each_group():
    lines = [json.loads(line) for line in render_lines(REPORT)]

    assert [(line["group"], line["held"], line["of"]) for line in lines] == [("network", 1, 1), ("limits", 0, 1)]
    assert lines[1]["missed"][0]["attempt"] == "fork"
    assert lines[1]["attempts"] == {"fork": False}
    assert count_by_group(REPORT.findings) == {"network": (1, 1), "limits": (0, 1)}


def test_people_read_what_did_not_hold():
    text = render_report(REPORT)

    assert text.startswith("bubblewrap: 1 of 2 denied")
    assert "NOT DENIED  limits: fork (it succeeded)" in text


def test_the_table_has_a_row_for_each_attempt():
    other = BatteryReport("containers", (HELD,), 100.0, 2.5)

    page = render_table([REPORT, other])

    assert "- bubblewrap: 1 of 2 denied\n- containers: 1 of 1 denied\n" in page
    assert "| group | attempt | bubblewrap | containers |\n|---|---|---|---|\n" in page
    assert "| network | connect | denied | denied |\n| limits | fork | **not denied** | not tried |\n" in page
