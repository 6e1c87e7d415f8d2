"""Reading answers."""

import httpx2
import pytest

from everturn_client import answers
from everturn_client.errors import BadAnswer, TooMuch


def test_problem_details_become_an_error_with_the_fields() -> None:
    response = httpx2.Response(429, headers={"retry-after": "7"})
    body = b'{"type":"urn:everturn:problem:x","title":"T","detail":"D","errors":[{"field":"f","message":"m"}, 3]}'

    error = answers.build_problem(response, body)

    assert (error.problem.type, error.problem.title, error.problem.detail) == ("urn:everturn:problem:x", "T", "D")
    assert error.fields == ("f: m", "")
    assert error.retry_after_s == 7.0


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"title": 3, "errors": {}}', b"\xff"])
def test_an_error_without_problem_details_still_says_its_status(body: bytes) -> None:
    error = answers.build_problem(httpx2.Response(502, headers={"retry-after": "soon"}), body)

    assert error.problem.status == 502
    assert error.problem.title == "Bad Gateway"
    assert error.retry_after_s is None


def test_an_unreadable_answer_is_refused() -> None:
    with pytest.raises(BadAnswer):
        answers.parse_answer(answers.Accepted, b"{}")


def test_fields_of_a_newer_server_are_ignored() -> None:
    page = answers.parse_answer(answers.ConversationPage, b'{"items":[],"next_cursor":null,"total":3}')

    assert page.items == ()


async def test_a_body_above_the_cap_is_refused() -> None:
    with pytest.raises(TooMuch):
        await answers.read_body(httpx2.Response(200, content=b"12345"), max_bytes=4)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('attachment; filename="a b.csv"', "a b.csv"),
        ("attachment; filename=\"x\"; filename*=UTF-8''%C3%BC.csv", "ü.csv"),
        ("inline", None),
        (None, None),
    ],
)
def test_the_name_of_a_download_is_read(value: str | None, expected: str | None) -> None:
    headers = {"content-disposition": value} if value else {}

    assert answers.try_read_filename(httpx2.Response(200, headers=headers)) == expected


def test_a_waiting_conversation_has_a_position() -> None:
    body = (
        b'{"conversation_id":"conv_1","title":"","state":"queued","created_at":"","last_activity_at":"",'
        b'"turn_id":"turn_1","position":100,"position_more":true,"newer":1}'
    )

    read = answers.parse_answer(answers.ConversationNow, body)

    assert (read.turn_id, read.position, read.position_more) == ("turn_1", 100, True)
