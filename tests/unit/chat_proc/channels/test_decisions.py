from chat_proc.channels.actions import Decision, Problem


def test_only_fatal_problems_ask_for_another_try() -> None:
    remark = Problem("text_outside_channels", "Write inside channels.", fatal=False)
    failure = Problem("no_action", "Write an action.")

    decision = Decision(raw="x", problems=(remark, failure))

    assert decision.fatal_problems == (failure,)
