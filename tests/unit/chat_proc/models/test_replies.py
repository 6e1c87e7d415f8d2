"""Status, kind, words and headers of a refusal decide whether and when to ask again."""

from datetime import UTC, datetime

import pytest

from chat_proc.models.replies import build_failure, build_transport_failure, read_retry_after
from everturn.models.port import ContextLimitExceeded

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "12"}, 12.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Thu, 01 Jan 2026 11:00:00 GMT"}, None),
        ({"retry-after": "0"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"}, None),
        ({"retry-after": "Mon, 01 Jan 2026 00:00:00 +99999999999999999999"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    assert read_retry_after(headers, NOW) == seconds


def test_the_provider_may_forbid_or_allow_a_retry_itself() -> None:
    forbidden = build_failure(status=500, kind=None, message="", headers={"x-should-retry": "false"}, now=NOW)
    allowed = build_failure(status=400, kind=None, message="", headers={"x-should-retry": "true"}, now=NOW)

    assert (forbidden.retryable, allowed.retryable) == (False, True)


@pytest.mark.parametrize("kind", ["insufficient_quota", "billing_error", "contract_spend_limit_reached"])
def test_an_empty_purse_is_not_waited_for(kind: str) -> None:
    assert not build_failure(status=429, kind=kind, message="", headers={}, now=NOW).retryable


def test_a_status_inside_a_stream_counts_like_one_outside() -> None:
    refused = build_failure(status=200, kind="401", message="key sk-1", headers={}, now=NOW)
    busy = build_failure(status=200, kind="429", message="busy", headers={}, now=NOW)

    assert (refused.retryable, busy.retryable) == (False, True)
    assert "sk-1" not in str(refused)


def test_a_long_message_is_cut() -> None:
    failure = build_failure(status=500, kind=None, message="x" * 10_000, headers={}, now=NOW)

    assert len(str(failure)) < 600


def test_a_too_long_prompt_is_detected_by_its_message() -> None:
    message = "This model's maximum context length is 16385 tokens."

    assert isinstance(build_failure(status=400, kind=None, message=message, headers={}, now=NOW), ContextLimitExceeded)


def test_text_that_cannot_be_sent_is_not_sent_again() -> None:
    unsendable = build_transport_failure(UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates"))
    unreadable = build_transport_failure(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "start byte"))

    assert (unsendable.retryable, unreadable.retryable) == (False, True)
