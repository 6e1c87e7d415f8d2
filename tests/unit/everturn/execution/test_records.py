"""Messages as frames: what is no such message is refused. The messages themselves are in test_execution."""

import pytest

from everturn.execution.broker_messages import (
    Attach,
    Attached,
    BrokerRefusal,
    KillPair,
    ListPairs,
    PairEnded,
    PairList,
    PairStarted,
    PairSummary,
    RemovePair,
    StartPair,
)
from everturn.execution.framing import FrameDecoder, encode_frame
from everturn.execution.messages import Posture, RunLimits
from everturn.execution.records import BadMessage, build_message, parse_message

POSTURE = Posture("l", "r", 1, "u", "n", "m", "p", "d", "s")
MESSAGES = [
    StartPair("default", "run-1"),
    PairStarted("id", True, RunLimits(), POSTURE, "sha256:a", "sha256:b"),
    Attach("id"),
    Attached(),
    KillPair("id"),
    RemovePair("id"),
    PairEnded(("memory",)),
    ListPairs({"run": "run-1"}),
    PairList((PairSummary("run-1", "default", "warm", 3),), 1),
    BrokerRefusal("busy", "full"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_of_the_broker_survives_the_way_through_a_frame(message):
    [frame] = FrameDecoder().feed(encode_frame(build_message(message)))

    assert parse_message(frame, type(message)) == message


@pytest.mark.parametrize(
    "frame",
    [
        {},
        {"kind": "start"},
        {"kind": "start_pair", "profile": "default"},
        {"kind": "start_pair", "profile": "default", "run_id": 1},
        {"kind": "start_pair", "profile": "default", "run_id": "r", "binds": ["/:/host"]},
    ],
)
def test_a_frame_that_is_not_the_message_is_refused(frame):
    with pytest.raises(BadMessage):
        parse_message(frame, StartPair)
