"""Forms of socket calls."""

import pytest
from pydantic import ValidationError

from ingress.sockets.schemas import AuthIn, SubmitIn, SubscribeIn, drop_fields


def test_a_submission_is_split_into_its_own_fields_and_those_of_rest() -> None:
    payload = {
        "conversation_id": "new",
        "text": "x",
        "files": [{"filename": "a", "data": b"1"}],
        "idempotency_key": "k",
    }

    envelope = SubmitIn.model_validate(payload)

    assert envelope.files[0].data == b"1"
    assert drop_fields(payload, SubmitIn) == {"text": "x"}


@pytest.mark.parametrize(
    ("form", "fields"),
    [
        (AuthIn, {"token": 1}),
        (AuthIn, {"password": "x"}),
        (SubmitIn, {}),
        (SubmitIn, {"conversation_id": "new", "files": [{"filename": "a", "data": "text"}]}),
        (SubscribeIn, {"conversation_id": "c", "after": 3}),
        (SubscribeIn, {"conversation_id": "c" * 100}),
    ],
)
def test_other_fields_and_types_are_refused(form: type[AuthIn], fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        form.model_validate(fields)
