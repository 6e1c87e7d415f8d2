"""Logs are structured, and secrets never stand in them."""

import json
import subprocess
import sys

import pytest

from everturn.telemetry.logging import redact_secrets

PROGRAM = """
import structlog
from everturn.telemetry.logging import configure_logging
configure_logging("info", "json")
log = structlog.get_logger()
with structlog.contextvars.bound_contextvars(conversation_id="conv_1"):
    log.debug("hidden")
    log.info("turn started", password="hunter2")
    try:
        1 / 0
    except ZeroDivisionError:
        log.exception("it broke")
"""


@pytest.mark.parametrize(
    "key", ["password", "API_KEY", "apikey", "access_token", "Authorization", "client_secret", "cookie"]
)
def test_a_value_whose_key_names_a_secret_is_hidden(key: str) -> None:
    assert redact_secrets(None, "info", {key: "hunter2"}) == {key: "***"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("postgresql://role:hunter2@host/db", "postgresql://role:***@host/db"),
        ("redis://:hunter2@host:6379/0", "redis://:***@host:6379/0"),
        ("a plain text", "a plain text"),
    ],
)
def test_a_secret_inside_a_text_is_hidden(text: str, shown: str) -> None:
    assert redact_secrets(None, "info", {"event": text}) == {"event": shown}


def test_counts_of_tokens_are_no_secret() -> None:
    assert redact_secrets(None, "info", {"input_tokens": 7}) == {"input_tokens": 7}


def test_a_line_is_json_on_standard_error_with_what_is_bound() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=True)

    started, broke = (json.loads(line) for line in ran.stderr.splitlines())
    assert ran.stdout == ""
    assert (started["event"], started["level"], started["conversation_id"]) == ("turn started", "info", "conv_1")
    assert started["password"] == "***"
    assert "ZeroDivisionError" in broke["exception"]
