"""Bodies are frozen, and nothing unknown is inside."""

import inspect

import pytest
from pydantic import ValidationError

from everturn.timeline import blocks as block_bodies
from everturn.timeline.blocks import BlockType, Body, ExitBody, PromptBody, TextBody, ThinkingBody
from everturn.timeline.turns import Outcome, TurnUsage

BASES = Body, TextBody
KINDS = [
    kind
    for _, kind in inspect.getmembers(block_bodies, inspect.isclass)
    if issubclass(kind, Body) and kind not in BASES
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_body_belongs_to_a_type_and_is_closed(kind: type[Body]) -> None:
    assert kind in {each.traits.body for each in BlockType}
    assert kind.model_config.get("extra") == "forbid"
    assert kind.model_config.get("frozen")


def test_a_body_does_not_change() -> None:
    body = PromptBody(text="a")

    with pytest.raises(ValidationError):
        body.text = "b"


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValidationError):
        ThinkingBody.model_validate({"text": "a", "colour": "red"})


def test_an_exit_keeps_its_sums() -> None:
    body = ExitBody(outcome=Outcome.CAPPED, rounds=3, usage=TurnUsage(input_tokens=7, cost_usd=0.5), elapsed_ms=9)

    assert ExitBody.model_validate_json(body.model_dump_json()) == body
