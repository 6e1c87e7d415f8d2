"""The schemas accept what a stream sends, and nothing else."""

import json
from typing import Any

import jsonschema_rs
import pytest

from everturn.events import model as events
from everturn.events.model import EVENT_TYPES, Envelope, encode_envelope
from everturn.events.turn_view import build_state
from everturn.timeline.turns import Outcome, SignalKind, SignalState
from everturn_testing.events.stories import EXAMPLES, PROJECT, TENANT, make_artifact
from everturn_testing.turns.asking_stories import AskingStory
from ingress.stream.event_schemas import build_event_schemas


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    return build_event_schemas()


def build_validator(schemas: dict[str, Any]) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(
        {"$ref": "#/components/schemas/Event", "components": {"schemas": schemas}}
    )


def tell_a_story() -> AskingStory:
    story = AskingStory()
    turn_id = story.start_turn("Hello")
    story.start_round()
    story.stream("thinking", 0, ["I ", "see"])
    call_id = story.add_call("exec_tools.run", {"path": None, "n": 1})
    story.ask(call_id, "exec_tools.run", {"to": None})
    story.change_plan("p1", ["one", "two"])
    story.commit()
    story.show_step(call_id)
    story.settle_question(call_id, "approved", "Yes.")
    story.say(SignalKind.STEER, "Stop")
    story.settle_signals(SignalState.APPLIED)
    story.show_files([make_artifact(turn_id, "a.png")])
    story.lose_worker()
    story.start_round()
    story.answer(story.stream("answer", 0, ["Here it is."]), [1])
    story.end_turn(Outcome.COMPLETED)
    story.start_turn("Again")
    story.end_turn("failed")
    return story


def test_everything_that_a_stream_sends_is_an_event(schemas: dict[str, Any]) -> None:
    story = tell_a_story()
    state = build_state(story.page, tenant=TENANT, project=PROJECT)
    more = [events.StreamSnapshot(state=state), *EXAMPLES]
    last = story.events[-1]
    sent = [*story.events, *(last.model_copy(update={"type": each.type, "data": each, "id": None}) for each in more)]
    validator = build_validator(schemas)

    wrong = [str(error) for event in sent for error in validator.iter_errors(json.loads(encode_envelope(event)))]

    assert not wrong
    assert {event.type for event in sent} == set(EVENT_TYPES)


@pytest.mark.parametrize(
    "change",
    [
        {"type": "chat.unknown"},
        {"type": "chat.step"},
        {"turn_id": None},
        {"data": {"title": "One", "more": 1}},
        {"data": {}},
    ],
)
def test_what_no_stream_sends_is_none(schemas: dict[str, Any], change: dict[str, Any]) -> None:
    event = Envelope(
        id="1-1", type="conv.title", ts="now", conversation_id="conv_1", data=events.ConvTitle(title="One")
    )
    fields = json.loads(encode_envelope(event))
    validator = build_validator(schemas)

    assert validator.is_valid(fields)
    assert not validator.is_valid({**fields, **change})


def test_each_type_has_one_variant_that_names_it(schemas: dict[str, Any]) -> None:
    variants = [schemas[each["$ref"].rpartition("/")[2]] for each in schemas["Event"]["oneOf"]]

    assert [variant["properties"]["type"]["const"] for variant in variants] == list(EVENT_TYPES)
    assert all("type" not in schemas[name]["properties"] for name in ("ChatDelta", "ChatComplete"))
