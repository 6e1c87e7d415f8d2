"""Validation problems name the fields and don't repeat the input."""

import pytest
from pydantic import BaseModel, Field, ValidationError

from ingress.fields import MAX_ERRORS, NOT_BLANK, problem_of_validation


def test_a_problem_names_each_field_and_never_the_value() -> None:
    errors = [
        {"loc": ("attachments", 0, "mime"), "msg": "Field required", "input": "secret"},
        {"loc": ("text",), "msg": "too long", "input": "secret"},
    ]

    refused = problem_of_validation(errors, "body")

    assert refused.status_code == 422
    assert refused.answer.detail == "body.attachments.0.mime: Field required"
    assert [error["field"] for error in refused.errors] == ["body.attachments.0.mime", "body.text"]
    assert "secret" not in str(refused.errors)


class Form(BaseModel):
    """A body with each kind of field whose errors are reworded."""

    query: str = Field(pattern=NOT_BLANK)
    kind: str = Field(pattern="^[a-z]+$")


@pytest.mark.parametrize(
    ("body", "messages"),
    [
        ({"query": " ", "kind": "A B"}, ["Text should not be blank", "Text should have the form ^[a-z]+$"]),
        ([], ["Input should be an object"]),
    ],
)
def test_messages_do_not_name_classes_or_bare_patterns(body: object, messages: list[str]) -> None:
    with pytest.raises(ValidationError) as raised:
        Form.model_validate(body)

    refused = problem_of_validation(raised.value.errors(), "body")

    assert [error["message"] for error in refused.errors] == messages


def test_many_errors_and_long_places_are_cut() -> None:
    errors = [{"loc": ("x" * 1000,), "msg": "m" * 1000}] * 100

    refused = problem_of_validation(errors)

    assert len(refused.errors) == MAX_ERRORS
    assert len(refused.answer.detail) < 500


def test_no_body_at_all_cannot_be_read() -> None:
    refused = problem_of_validation([{"type": "missing", "loc": ("body",), "msg": "Field required"}])

    assert refused.status_code == 400
