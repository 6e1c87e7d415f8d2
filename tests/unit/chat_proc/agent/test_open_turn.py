from chat_proc.turn.leased import CommitContent
from everturn.core.ids import SignalId
from everturn.events.model import ConvTitle
from everturn.timeline.turns import SignalState
from everturn.turns.model import SignalChange, UsageEvent

USAGE = UsageEvent("m", "decision", 1, 1, 0, 0, 0.0, False)
CHANGE = SignalChange(SignalId("sig_1"), SignalState.APPLIED)


def test_two_writings_make_one_in_their_order() -> None:
    one = CommitContent(usage=(USAGE,), after=((ConvTitle(title="a"), 1),))
    other = CommitContent(signals=(CHANGE,), after=((ConvTitle(title="b"), None),), rewind=True)

    both = one.plus(other)

    assert both == CommitContent(
        usage=(USAGE,),
        signals=(CHANGE,),
        after=((ConvTitle(title="a"), 1), (ConvTitle(title="b"), None)),
        rewind=True,
    )
