"""The schema of messages."""

import pytest
from pydantic import ValidationError

from ingress.chat.schemas import MessageIn, SignalIn


def test_a_message_with_a_file_is_read() -> None:
    form = MessageIn.model_validate({"text": "a", "attachments": [{"filename": "a.csv", "data_base64": "YQ=="}]})

    assert form.attachments[0].mime == ""


@pytest.mark.parametrize(
    "fields",
    [
        {"text": 1},
        {"text": None},
        {"text": "a", "more": 1},
        {"text": "a", "kind": "cancel"},
        {"text": "a", "attachments": {}},
        {"text": "a", "attachments": [{"filename": "a"}]},
        {"text": "a", "attachments": [{"filename": "", "data_base64": ""}]},
        {"text": "a", "bundle_id": "../x"},
        {"text": "a", "bundle_id": ""},
        {"text": "a", "target_turn_id": "x" * 100},
        [],
        "text",
        None,
    ],
)
def test_wrong_types_and_unknown_fields_are_refused(fields: object) -> None:
    with pytest.raises(ValidationError):
        MessageIn.model_validate(fields)


@pytest.mark.parametrize("fields", [{}, {"kind": "agree"}, {"kind": "steer", "text": 1}])
def test_a_signal_is_of_one_of_the_kinds_there_are(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        SignalIn.model_validate(fields)
