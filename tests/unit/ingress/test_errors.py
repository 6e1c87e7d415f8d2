"""Errors become problems."""

import json

import pytest

from everturn.core.errors import Conflict, EverturnError, Invalid, NotFound, StaleFence, Unavailable, problem
from everturn.core.work_slots import NoRoom
from everturn.turns.inbox import InboxFull, KeyBusy, KeyReused, UploadTooLate
from ingress import errors


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotFound("conv_1"), 404),
        (Conflict("x"), 409),
        (KeyBusy(), 409),
        (InboxFull("x"), 429),
        (Invalid("x"), 422),
        (KeyReused(), 422),
        (Unavailable("x"), 503),
    ],
)
def test_errors_of_the_platform_have_a_status(error: EverturnError, status: int) -> None:
    translated = errors.translate_error(error)

    assert translated and translated.status_code == status


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (NoRoom("Too many files are being scanned."), "Too many files are being scanned."),
        (UploadTooLate(), "Send it again."),
        (Unavailable("postgres at 10.0.0.1"), "A component of the service does not respond."),
    ],
)
def test_a_503_says_what_to_do_and_nothing_of_the_servers(error: EverturnError, detail: str) -> None:
    translated = errors.translate_error(error)

    assert translated
    assert translated.answer.detail.endswith(detail)
    assert "10.0.0.1" not in translated.answer.detail


def test_a_conflict_does_not_say_its_title_twice() -> None:
    translated = errors.translate_error(Conflict("No turn is open."))

    assert translated and translated.answer.detail == "No turn is open."


def test_an_absent_thing_is_not_named() -> None:
    translated = errors.translate_error(NotFound("conv_secret"))

    assert translated and "secret" not in str(translated.answer)


def test_an_error_of_ours_is_not_translated() -> None:
    assert errors.translate_error(StaleFence()) is None


def test_a_problem_is_sent_as_rfc_9457_says() -> None:
    named = errors.unprocessable("body.text: too long", errors=[{"field": "body.text", "message": "too long"}])

    response = errors.problem_response(named)

    assert response.media_type == "application/problem+json"
    body = json.loads(bytes(response.body))
    assert body["type"] == "urn:everturn:problem:unprocessable"
    assert body["status"] == response.status_code == 422
    assert body["errors"] == [{"field": "body.text", "message": "too long"}]


def test_refusals_for_now_say_when_to_come_back() -> None:
    for refused in (errors.unavailable("x"), errors.too_many("x", retry_after_s=3)):
        assert refused.headers and int(refused.headers["Retry-After"]) > 0


def test_each_refusal_has_its_status() -> None:
    made = [
        errors.malformed,
        errors.unauthorized,
        errors.forbidden,
        errors.absent,
        errors.too_large,
        errors.unsupported,
    ]

    assert [make("x").status_code for make in made] == [400, 401, 403, 404, 413, 415]
    assert errors.ProblemError(problem("a", "b", 418)).status_code == 418
