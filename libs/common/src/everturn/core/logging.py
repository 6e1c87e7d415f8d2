"""Structured logs on standard error: JSON for machines, lines for people; secrets are redacted."""

import json
import logging
import os
import re
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, cast
from urllib.parse import quote, unquote, urlsplit

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from everturn.core.metrics import LOG_LINES_LOST

# Takes the secrets that this process was configured with out of what leaves it: results of tools, and logs.

HIDDEN: Final = "[redacted]"
MIN_SECRET_CHARS: Final = 8
"""Shorter ones are no secrets, and would spoil texts that have nothing to do with them."""
MAX_DEPTH: Final = 64


class Redactor:
    """Knows secrets as they are, as they stand in an address, and as they stand in JSON. It never shows them."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {secret for secret in secrets if len(secret) >= MIN_SECRET_CHARS}
        spelt = {form for secret in known for form in (secret, quote(secret, safe=""), _in_json(secret))}
        self._spelt = tuple(sorted(spelt, key=lambda form: (-len(form), form)))

    def redact(self, text: str) -> str:
        """The text with `[redacted]` where a secret stood."""
        for secret in self._spelt:
            text = text.replace(secret, HIDDEN)
        return text

    def redact_value(self, value: object, depth: int = MAX_DEPTH) -> object:
        """JSON values and bytes with the same done in every text, also in names. What is too deep is hidden whole."""
        if depth == 0:
            return HIDDEN
        match value:
            case str():
                return self.redact(value)
            case bytes():
                return self._redact_bytes(value)
            case Mapping():
                fields = cast("Mapping[object, object]", value).items()
                return {self.redact(str(key)): self.redact_value(item, depth - 1) for key, item in fields}
            case list() | tuple():
                return [self.redact_value(item, depth - 1) for item in cast("list[object]", value)]
            case _:
                return value

    def _redact_bytes(self, data: bytes) -> bytes:
        for secret in self._spelt:
            data = data.replace(secret.encode(), HIDDEN.encode())
        return data


def find_url_secrets(urls: Iterable[str]) -> list[str]:
    """The passwords in addresses, as they are meant."""
    return [unquote(password) for url in urls if (password := urlsplit(url).password)]


def find_named_secrets(environment: Mapping[str, str]) -> list[str]:
    """The values of variables whose names say that they are secret."""
    telling = ("KEY", "TOKEN", "SECRET", "PASSWORD")
    return [value for name, value in environment.items() if name.upper().endswith(telling)]


def _in_json(secret: str) -> str:
    return secret.replace("\\", "\\\\").replace('"', '\\"')


_SECRET_KEY = re.compile(r"(?i)password|secret|token$|authorization|api_?key|cookie")
_SECRET_TEXT = re.compile(
    r"(?i)(bearer\s+|//(?!\[[0-9a-f:.%]+\])[^/\s:@]*:(?!\d{1,5}(?!\w|[^\s/]*@)))[^\s@/]+",
)
"""Bearer tokens and passwords in addresses. A port is none: up to five digits that no @ follows."""
_OUR_CREDENTIAL = re.compile(r"(ev[ktg]_)[A-Za-z0-9_.=%-]{16,}|([?&]ticket=)[^&\s\"']+")
"""API keys, tickets and guest tokens, wherever they stand; a ticket travels in addresses."""


def redact_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Hide values whose key names a secret, and bearer tokens and URL passwords inside texts."""
    for key, value in event.items():
        if _SECRET_KEY.search(key):
            event[key] = "***"
        elif isinstance(value, str):
            event[key] = _hide(value)
    return event


def _hide(text: str) -> str:
    return _OUR_CREDENTIAL.sub(r"\1\2***", _SECRET_TEXT.sub(r"\1***", text))


def build_hiding(redactor: Redactor) -> Processor:
    """A processor that takes known secrets out of every text of an event, wherever they come from."""

    def hide_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {key: redactor.redact_value(value) for key, value in event.items()}

    return hide_secrets


def _now() -> str:
    return datetime.now(UTC).isoformat()


class LogStream:
    """A file descriptor for log lines. A line that can't be written, as on a full disk, is lost and counted.

    What is logged never ends what logs. The next line that can be written stands behind one that says how many are
    missing. Writing waits as long as the descriptor does.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lost = 0

    def write(self, text: str) -> int:
        try:
            if self._lost:
                note = {"event": "log_lines_lost", "lost": self._lost, "level": "warning", "timestamp": _now()}
                # The line before may have been cut off in its middle. A logger would wait here for itself.
                self._write_all(f"\n{json.dumps(note)}\n".encode())
                self._lost = 0
            self._write_all(text.encode(errors="backslashreplace"))
        except OSError:
            self._lost += 1
            LOG_LINES_LOST.inc()
        return len(text)

    def flush(self) -> None:
        """Nothing is kept back."""

    def _write_all(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]


def configure_logging(level: str, form: Literal["json", "console"], redactor: Redactor | None = None) -> None:
    """Set up structlog and the standard library's logging for this process; `redactor` knows what is never logged."""
    stream = LogStream(sys.stderr.fileno())
    renderer = structlog.processors.JSONRenderer() if form == "json" else structlog.dev.ConsoleRenderer()
    bound: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
    ]
    # Last, so that what was put in on the way is seen as well.
    shown: list[Processor] = [redact_secrets, build_hiding(redactor or Redactor()), renderer]
    structlog.configure(
        processors=[*bound, *shown],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(cast(Any, stream)),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *bound],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *shown],
        )
    )
    logging.basicConfig(level=level.upper(), handlers=[handler])
