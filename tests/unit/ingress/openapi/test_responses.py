"""Problems in the OpenAPI document."""

from ingress.app import build_routes
from ingress.openapi.responses import PROBLEM_SCHEMA, problems


def test_every_route_has_the_common_problems_and_its_own() -> None:
    described = problems(409)

    assert set(described) == {400, 401, 403, 404, 409, 422, 429, 431, 500, 503}
    assert "application/problem+json" in described[409]["content"]


def test_the_schema_requires_what_a_problem_always_has() -> None:
    assert set(PROBLEM_SCHEMA["required"]) == {"type", "title", "status", "detail"}


def test_every_route_with_a_body_says_how_it_refuses_one() -> None:
    paths = build_routes().openapi()["paths"]

    silent = [
        (method, path)
        for path, methods in paths.items()
        for method, route in methods.items()
        if "requestBody" in route and not {"408", "413", "415"} <= route["responses"].keys()
    ]

    assert silent == []
