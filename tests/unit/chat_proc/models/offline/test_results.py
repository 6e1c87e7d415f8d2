"""The printed result of the analysis program is read back, and nothing else is taken for one."""

import json

from chat_proc.models.offline.results import Figures, TableResult, try_read_result

RESULT = {
    "file": "sales.csv",
    "by": [["date", "M"]],
    "totals": {"units": {"total": 3}, "revenue": {"total": 9}},
    "groups": [{"name": "2024-01", "rows": 1, "values": {"revenue": {"total": 9, "mean": 4.5}}}],
}


def test_a_result_is_found_in_a_report_and_a_broken_one_is_not() -> None:
    report = f"warning: x\nRESULT {json.dumps(RESULT)}\n[artifacts]\nfi:turn_1.outputs/sales.png"

    assert try_read_result(report) == TableResult.model_validate(RESULT)
    assert try_read_result("RESULT {cut") is None
    assert try_read_result('RESULT {"rows": "many"}') is None
    assert try_read_result("nothing") is None


def test_the_measures_are_the_columns_that_groups_have_figures_of() -> None:
    assert TableResult.model_validate(RESULT).measures == ["revenue"]


def test_a_figure_is_found_by_its_name() -> None:
    figures = Figures(total=1, mean=2, min=3, max=4, median=5)

    assert [figures.figure(name) for name in ("total", "mean", "min", "max", "median", "other")] == [1, 2, 3, 4, 5, 1]
