"""Problems in the OpenAPI document."""

from ingress.openapi.responses import PROBLEM_SCHEMA, problems


def test_every_route_has_the_common_problems_and_its_own() -> None:
    described = problems(409)

    assert set(described) == {400, 401, 403, 404, 409, 422, 429, 431, 500, 503}
    assert "application/problem+json" in described[409]["content"]


def test_the_schema_requires_what_a_problem_always_has() -> None:
    assert set(PROBLEM_SCHEMA["required"]) == {"type", "title", "status", "detail"}
