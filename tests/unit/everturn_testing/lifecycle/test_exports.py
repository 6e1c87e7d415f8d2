"""The built export is one that verifies."""

from everturn.lifecycle.export_check import check_export
from everturn_testing.lifecycle.exports import CONVERSATION, build_export


def test_the_export_of_a_talk_is_whole() -> None:
    report = check_export(build_export("one", "two"))

    assert (report.conversation_id, report.end.blocks, report.end.feedback) == (CONVERSATION, 6, 1)
