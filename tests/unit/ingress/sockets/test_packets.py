"""Frames that this server sends itself."""

import json

from ingress.errors import absent, too_many
from ingress.sockets.packets import (
    build_answer,
    build_problem,
    build_refusal,
    render_answer,
    render_event,
    render_farewell,
    render_own,
    render_refused_namespace,
)
from ingress.stream.frames import SentEvent


def test_an_event_carries_the_bytes_of_its_envelope() -> None:
    assert render_event(SentEvent("chat_delta", '{"text":"ä"}'.encode())) == '42["chat_delta",{"text":"ä"}]'
    assert render_own("session_info", {"a": 1}) == '42["session_info",{"a":1}]'
    assert render_farewell() == "41"


def test_an_answer_has_the_status_and_the_body_of_rest() -> None:
    frame = render_answer(7, build_answer(200, {"a": 1}))

    assert frame == '437[{"status":200,"body":{"a":1}}]'


def test_a_refusal_is_a_problem_with_the_time_to_wait() -> None:
    refusal = build_refusal(too_many("Enough.", retry_after_s=3))

    assert refusal["status"] == refusal["body"]["status"] == 429
    assert refusal["body"]["retry_after_s"] == 3
    assert "retry_after_s" not in build_problem(absent())


def test_a_refused_namespace_says_why() -> None:
    head, _, data = render_refused_namespace("/x", absent("No.")).partition(",")

    assert head == "44/x"
    assert render_refused_namespace("/", absent("No.")).startswith('44{"message":"No."')
    assert json.loads(data)["message"] == "No."
    assert json.loads(data)["data"]["status"] == 404
