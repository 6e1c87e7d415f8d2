"""Trials: every attempt of the battery has one name and belongs to one program."""

from collections import Counter

from chat_proc.selftest.run import list_attempts
from chat_proc.selftest.trials import GRANTED_TOOL, ONE_TOOL


def test_every_attempt_is_named_once():
    assert [pair for pair, count in Counter(list_attempts()).items() if count > 1] == []


def test_programs_may_call_one_tool():
    assert [grant.tool_id for grant in ONE_TOOL.grants] == [GRANTED_TOOL]
