"""Problems have stable types."""

import pytest
from pydantic import ValidationError

from everturn.core.errors import Problem, problem


def test_a_problem_has_a_stable_type() -> None:
    made = problem("not-found", "There is no such thing.", 404, "conv_1")

    assert made.type == "urn:everturn:problem:not-found"
    assert (made.title, made.status, made.detail) == ("There is no such thing.", 404, "conv_1")


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValidationError):
        Problem.model_validate({"type": "x", "title": "x", "status": 400, "stack": "x"})
