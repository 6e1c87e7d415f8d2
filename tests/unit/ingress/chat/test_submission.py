"""Submissions are read from JSON; multipart has its own tests."""

import base64
import json
import threading
from contextlib import suppress
from typing import Any

import pytest
from fastapi import FastAPI
from pydantic import model_validator
from starlette.types import Message

from ingress.admission.route import AdmittedRequest, admit_request
from ingress.chat.schemas import (
    MAX_PLAIN_CHARS,
    MAX_PLAIN_FIELDS,
    MessageIn,
    SubmissionCaps,
    check_submission,
    read_submission,
)
from ingress.errors import ProblemError

CAPS = SubmissionCaps(text_chars=5, files=2, json_bytes=1_000)


def request(body: Any, content_type: str = "application/json") -> AdmittedRequest:
    async def receive() -> Message:
        return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", content_type.encode())], "app": FastAPI()}
    return admit_request(AdmittedRequest(scope, receive), max_body_bytes=10_000)


async def refusal(body: Any, content_type: str = "application/json") -> ProblemError:
    with pytest.raises(ProblemError) as refused:
        await read_submission(request(body, content_type), MessageIn, CAPS)
    return refused.value


def attachment(data: str) -> dict[str, str]:
    return {"filename": "a.csv", "mime": "Text/CSV; charset=utf-8", "data_base64": data}


async def test_files_are_decoded_and_their_declared_type_is_bare() -> None:
    body = {"text": "12345", "attachments": [attachment(base64.b64encode(b"a,b").decode())]}

    submission = await read_submission(request(body), MessageIn, CAPS)

    assert submission.form.text == "12345"
    assert [(file.filename, file.declared, file.data) for file in submission.files] == [("a.csv", "text/csv", b"a,b")]


async def test_a_text_above_the_cap_and_too_many_files_are_too_large() -> None:
    assert (await refusal({"text": "123456"})).status_code == 413
    assert (await refusal({"text": "a", "attachments": [attachment("YQ==")] * 3})).status_code == 413


@pytest.mark.parametrize("data", ["*", "YQ=", "YQ==YQ", "ä", "Y Q=="])
async def test_what_is_no_base64_is_named(data: str) -> None:
    refused = await refusal({"text": "a", "attachments": [attachment("YQ=="), attachment(data)]})

    assert refused.status_code == 422
    assert refused.errors[0]["field"] == "body.attachments.1.data_base64"


async def test_an_unknown_field_is_named() -> None:
    refused = await refusal({"text": "a", "unknown": 1})

    assert refused.status_code == 422
    assert refused.errors[0]["field"] == "body.unknown"


async def test_other_types_are_unsupported() -> None:
    assert (await refusal({"text": "a"}, "text/plain")).status_code == 415


@pytest.mark.parametrize(
    ("fields", "on_loop"),
    [
        ({"text": "a"}, True),
        ({"text": "a" * MAX_PLAIN_CHARS}, False),
        ({"a" * MAX_PLAIN_CHARS + "a": 1}, False),
        (dict.fromkeys(map(str, range(MAX_PLAIN_FIELDS + 1))), False),
        ({"text": "a", "attachments": []}, False),
    ],
)
async def test_only_a_small_submission_is_checked_on_the_event_loop(fields: dict[str, Any], on_loop: bool) -> None:
    threads: list[int] = []

    class Watched(MessageIn):
        @model_validator(mode="before")
        @classmethod
        def note_thread(cls, fields: Any) -> Any:
            threads.append(threading.get_ident())
            return fields

    with suppress(ProblemError):
        await check_submission(fields, (), Watched, CAPS)

    assert [thread == threading.get_ident() for thread in threads] == [on_loop]
