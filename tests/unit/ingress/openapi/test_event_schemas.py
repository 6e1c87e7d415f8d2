"""The schemas accept what a stream sends, and nothing else."""

import json
from typing import Any

import jsonschema_rs
import pytest
from helpers.event_examples import EXAMPLES

from everturn.events import model as events
from everturn.events.model import EVENT_TYPES, Envelope, encode_envelope
from everturn.events.turn_view import build_state
from everturn.timeline.turns import Outcome, SignalKind, SignalState
from everturn_testing.events.scenarios import PROJECT, TENANT, make_artifact
from everturn_testing.turns.approval_scenarios import ApprovalScenario
from ingress.openapi.event_schemas import build_event_schemas


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    return build_event_schemas()


def build_validator(schemas: dict[str, Any]) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(
        {"$ref": "#/components/schemas/Event", "components": {"schemas": schemas}}
    )


def play_a_scenario() -> ApprovalScenario:
    scenario = ApprovalScenario()
    turn_id = scenario.start_turn("Hello")
    scenario.start_round()
    scenario.stream("thinking", 0, ["I ", "see"])
    call_id = scenario.add_call("exec_tools.run", {"path": None, "n": 1})
    scenario.ask(call_id, "exec_tools.run", {"to": None})
    scenario.change_plan("p1", ["one", "two"])
    scenario.commit()
    scenario.show_step(call_id)
    scenario.settle_question(call_id, "approved", "Yes.")
    scenario.say(SignalKind.STEER, "Stop")
    scenario.settle_signals(SignalState.APPLIED)
    scenario.show_files([make_artifact(turn_id, "a.png")])
    scenario.lose_worker()
    scenario.start_round()
    scenario.answer(scenario.stream("answer", 0, ["Here it is."]), [1])
    scenario.end_turn(Outcome.COMPLETED)
    scenario.start_turn("Again")
    scenario.end_turn("failed")
    return scenario


def test_everything_that_a_stream_sends_is_an_event(schemas: dict[str, Any]) -> None:
    scenario = play_a_scenario()
    state = build_state(scenario.page, tenant=TENANT, project=PROJECT)
    more = [events.StreamSnapshot(state=state), *EXAMPLES]
    last = scenario.events[-1]
    sent = [*scenario.events, *(last.model_copy(update={"type": each.type, "data": each, "id": None}) for each in more)]
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
