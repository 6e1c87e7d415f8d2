"""The messages of a run: each survives a frame, and objects of other shapes are rejected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.execution import messages as execution
from everturn.execution.framing import FrameDecoder, encode_frame
from everturn.execution.messages import (
    ArgumentRule,
    Boot,
    Booted,
    CallRecord,
    Capability,
    Dial,
    Finished,
    GatewayCall,
    Hello,
    InputsEnd,
    Interpreter,
    Launch,
    OpenStream,
    OutputsEnd,
    Posture,
    ProgramError,
    Ready,
    Report,
    RunLimits,
    Start,
    Stop,
    StreamCredit,
    StreamData,
    StreamLost,
    StreamOpened,
    ToolGrant,
    ToolReply,
    UidRange,
    Welcome,
    check_relative_path,
)
from everturn.execution.records import BadMessage, build_message, parse_message

POSTURE = Posture("bubblewrap", "cpython", 1001, "user", "none", "memory", "processes", "disk", "seccomp")
RULE = ArgumentRule("n", one_of=("a",), max_chars=3, max_items=2, maximum=1.5)
ERROR = ProgramError("ValueError", "no", 3, "Traceback", "memory")
REPORT = Report(1, None, ERROR, "out", "err", 3, 3, ("time", "disk"), ("extra",), (("a", "missing"),))
MESSAGES = [
    Launch(
        "run-1",
        "print()",
        ("a.txt",),
        10,
        RunLimits(),
        Capability((ToolGrant("a.b", (RULE,)), ToolGrant("a.c", None, 3))),
        "nonce",
    ),
    Boot(
        RunLimits(),
        Interpreter("/venv/bin/python", ("/venv",)),
        "/usr/bin/bwrap",
        "/run/x",
        UidRange(20_000, 20_999),
        ("numpy",),
    ),
    InputsEnd(),
    Stop("timeout"),
    Dial("p1", "token"),
    Ready(POSTURE),
    Start("run-1", "print()", ("a",), RunLimits(), "nonce", ("a.b",), 1 << 30),
    Booted("cpython 3.11", ("no network",)),
    ERROR,
    REPORT,
    Report(None, 9, None, "", "", 0, 0),
    OutputsEnd(),
    Hello("nonce"),
    Welcome(),
    GatewayCall(1, "a.b", {"q": "x", "raw": b"\xff", "deep": [{"a": None}]}),
    ToolReply(1, True, {"any": [1, b"x"]}),
    ToolReply(1, False, None, "not_allowed", "no"),
    Finished("ended", "", 12, POSTURE, REPORT, ("memory",), (CallRecord(1, "a.b", "ff", True, "", 3, 99),), {"x": 2}),
    Finished("not_started", "why", 0, None),
    OpenStream(1, "api.example.com", 443),
    StreamOpened(1, "no"),
    StreamData(1, b"\x00\xff"),
    StreamCredit(1, 3),
    StreamLost(1),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_survives_the_way_through_a_frame(message):
    [frame] = FrameDecoder().feed(encode_frame(build_message(message)))

    assert isinstance(frame, dict)
    assert parse_message(frame, type(message)) == message


def test_every_message_has_its_own_kind():
    kinds = [type(message).kind for message in {type(message): message for message in MESSAGES}.values()]

    assert len(set(kinds)) == len(kinds)
    assert {cls.__name__ for cls in vars(execution).values() if hasattr(cls, "kind") and cls.kind} == {
        type(message).__name__ for message in MESSAGES
    }


def with_change(message, **changes) -> dict[str, object]:
    return build_message(message) | changes


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        ({}, Stop),
        ({"kind": "stop"}, Stop),
        ({"kind": "stop", "reason": "bored"}, Stop),
        ({"kind": "stop", "reason": ["timeout"]}, Stop),
        ({"kind": "stop", "reason": "timeout", "more": 1}, Stop),
        ({"kind": "hello", "nonce": "x"}, Stop),
        ({"kind": "hello", "nonce": 1}, Hello),
        ({"kind": ["hello"]}, Hello),
        (with_change(GatewayCall(1, "a", {}), id=True), GatewayCall),
        (with_change(GatewayCall(1, "a", {}), id="1"), GatewayCall),
        (with_change(GatewayCall(1, "a", {}), id=1.0), GatewayCall),
        (with_change(GatewayCall(1, "a", {}), arguments=[]), GatewayCall),
        (with_change(REPORT, refused=[["a"]]), Report),
        (with_change(REPORT, refused=[["a", "b", "c"]]), Report),
        (with_change(REPORT, error={"type": "x"}), Report),
        (with_change(REPORT, error="x"), Report),
        (with_change(REPORT, undeclared="abc"), Report),
        (with_change(REPORT, exit_code="0"), Report),
        (with_change(MESSAGES[-2], refusals={"a": "b"}), Finished),
    ],
)
def test_an_object_of_another_shape_is_no_message(frame, kind):
    with pytest.raises(BadMessage):
        parse_message(frame, kind)


@given(
    st.dictionaries(
        st.text(max_size=9), st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=12), max_size=5
    )
)
def test_no_object_does_worse_than_a_bad_message(frame):
    for kind in {type(message) for message in MESSAGES}:
        try:
            parse_message({"kind": kind.kind, **frame}, kind)
        except BadMessage:
            continue


@pytest.mark.parametrize("path", ["a", "a/b.txt", "turn_1/attachments/über sicht.csv", "x" * 240, ".hidden", "a..b"])
def test_a_relative_path_passes(path):
    check_relative_path(path)


@pytest.mark.parametrize(
    "path",
    [
        *("", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/."),
        *("a\\b", "a\nb", "a\0b", "x" * 241, "a\u202eb", "ü" * 200),
    ],
)
def test_a_path_that_leads_elsewhere_or_misleads_is_refused(path):
    with pytest.raises(ValueError, match=r"a (path|name)"):
        check_relative_path(path)
