"""Logs are structured and contain no secrets."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from everturn.core.logging import redact_secrets

PROGRAM = """
import structlog
from everturn.core.logging import configure_logging
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
        ("redis://:12345@host:6379/0", "redis://:***@host:6379/0"),
        ("http://127.0.0.1:8080/x", "http://127.0.0.1:8080/x"),
        ("it listens on http://host:8080", "it listens on http://host:8080"),
        ("(http://[::1]:8080), and http://[::1]/", "(http://[::1]:8080), and http://[::1]/"),
        ("http://role:8080-and-more@host", "http://role:***@host"),
        ("http://role:8080secret/", "http://role:***/"),
        ("a plain text", "a plain text"),
        ("GET /c/events?after=1&ticket=evt_abc.def HTTP/1.1", "GET /c/events?after=1&ticket=*** HTTP/1.1"),
        ("GET /c/events?ticket=odd&after=1", "GET /c/events?ticket=***&after=1"),
        ("key evk_0123456789abcdef_" + "s" * 43 + " refused", "key evk_*** refused"),
        ("guest evg_eyJ1c2VyIjoiYSJ9.c2lnbmF0dXJl", "guest evg_***"),
        ("GET /widgets/evw_eyJ1c2VyIjoiYSJ9.c2lnbmF0dXJl/a.js", "GET /widgets/evw_***/a.js"),
        ('{"ticket": "eve_eyJ1c2VyIjoiYSJ9.c2lnbmF0dXJl"}', '{"ticket": "eve_***"}'),
        ("chat evs_eyJ1c2VyIjoiYSJ9.c2lnbmF0dXJl", "chat evs_***"),
        ("the column sleeve_length_in_millimetres", "the column sleeve_length_in_millimetres"),
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


def test_secrets_in_library_logs_are_hidden_too() -> None:
    program = (
        "import logging; from everturn.core.logging import configure_logging; configure_logging('info', 'json');"
        " logging.getLogger('server.access').info('%s %s', 'GET', '/events?ticket=evt_eyJhIjoxfQ.c2lnbmF0dXJl')"
    )

    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)

    line = json.loads(ran.stderr)
    assert (line["event"], line["level"], line["logger"]) == ("GET /events?ticket=***", "info", "server.access")


def test_library_log_lines_have_context_and_no_secrets() -> None:
    program = (
        "import logging, structlog; from everturn.core.logging import configure_logging;"
        " from everturn.core.logging import Redactor;"
        " configure_logging('info', 'json', Redactor(['a-configured-secret']));"
        " structlog.contextvars.bind_contextvars(turn_id='turn_1');"
        " logging.getLogger('library').error('it broke', exc_info=ValueError('a-configured-secret'))"
    )

    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)

    line = json.loads(ran.stderr)
    assert line["turn_id"] == "turn_1"
    assert "ValueError" in line["exception"]
    assert "a-configured-secret" not in ran.stderr


FULL_FOR_A_WHILE = """
import logging, resource, structlog
from everturn.core.logging import configure_logging
configure_logging("info", "json")
log, (_, most) = structlog.get_logger(), resource.getrlimit(resource.RLIMIT_FSIZE)
log.info("before")
resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))
log.info("lost")
logging.getLogger("library").warning("lost too")
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
log.info("after")
"""


def test_a_full_disk_loses_log_lines_only(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        done = subprocess.run([sys.executable, "-c", FULL_FOR_A_WHILE], stderr=log, check=False, timeout=60)

    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines() if line]
    assert done.returncode == 0
    assert [line["event"] for line in lines] == ["before", "Could not write log lines", "after"]
    assert lines[1]["lost"] == 2
