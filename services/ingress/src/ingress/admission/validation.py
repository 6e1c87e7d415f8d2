"""Validation errors as problems that name the fields."""

from collections.abc import Mapping, Sequence
from typing import Any

from ingress.errors import ProblemError, malformed, unprocessable

MAX_ERRORS = 20
MAX_NAME_CHARS = 80
"""Of the name of a field in a problem, which may be the client's own."""


def problem_of_validation(errors: Sequence[Mapping[str, Any]], root: str | None = None) -> ProblemError:
    """A 422 problem with the first errors, 400 without any body; input values are not repeated."""
    if [(error.get("type"), tuple(error.get("loc", ()))) for error in errors] == [("missing", ("body",))]:
        return malformed("The body is missing.")
    named = [
        {"field": _field(error, root), "message": str(error.get("msg", "invalid"))[:300]}
        for error in errors[:MAX_ERRORS]
    ]
    first = named[0]
    return unprocessable(f"{first['field']}: {first['message']}", errors=named)


def _field(error: Mapping[str, Any], root: str | None) -> str:
    places = [str(place)[:MAX_NAME_CHARS] for place in error.get("loc", ())]
    return ".".join([root, *places] if root else places) or "body"
