"""Structured logs on standard error: JSON for machines, lines for people; secrets are redacted."""

import json
import logging
import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, cast
from urllib.parse import quote, unquote, urlsplit

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from everturn.core.metrics import LOG_LINES_LOST

HIDDEN: Final = "[redacted]"
MIN_SECRET_CHARS: Final = 8
"""Shorter ones are not secrets, and would damage unrelated texts."""
MIN_LINE_CHARS: Final = 16
"""The shortest line with blanks of a secret of several lines that is hidden by itself."""
MAX_DEPTH: Final = 64

_SECRET_KEY = re.compile(r"(?i)password|secret|token$|authorization|api_?key|cookie")
_SECRET_TEXT = re.compile(
    r"(?i)(bearer\s+|//(?!\[[0-9a-f:.%]+\])[^/\s:@]*:(?!\d{1,5}(?!\w|[^\s/]*@)))[^\s@/]+",
)
"""Bearer tokens and passwords in addresses. A port is not one: up to five digits without a following @."""
_OUR_CREDENTIAL = re.compile(r"(ev[ktg]_|\bev[ews]_)[A-Za-z0-9_.=%-]{16,}|([?&]ticket=)[^&\s\"']+")
"""API keys, tickets, and tokens of guests and embedded chats, anywhere in a text; tickets are part of addresses. Some
words end with a prefix of the second group, such as `sleeve_`."""


class Redactor:
    """Finds secrets verbatim, URL-encoded and JSON-encoded, and single lines of them. It never reveals them."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.set_secrets(secrets)

    def set_secrets(self, secrets: Iterable[str]) -> None:
        """Hide these from now on, instead of the earlier ones."""
        # Also its lines: output that contains a secret of several lines is often read line by line.
        given = [secret.strip() for secret in secrets]
        lines = (line.strip() for secret in given for line in secret.splitlines())
        known = {secret for secret in (*given, *filter(_is_secret_line, lines)) if len(secret) >= MIN_SECRET_CHARS}
        spelt = {form for secret in known for form in (secret, quote(secret, safe=""), _in_json(secret))}
        self._spelt = tuple(sorted(spelt, key=lambda form: (-len(form), form)))

    @property
    def has_secrets(self) -> bool:
        return bool(self._spelt)

    def redact(self, text: str) -> str:
        """The text with `[redacted]` in place of each secret."""
        for secret in self._spelt:
            text = text.replace(secret, HIDDEN)
        return text

    def redact_value(
        self, value: object, depth: int = MAX_DEPTH, *, kept_keys: Collection[str] = frozenset()
    ) -> object:
        """Redacts every text and number in JSON values and bytes, and all keys but `kept_keys`. Values nested too deep
        are hidden as a whole."""
        if depth == 0:
            return HIDDEN
        match value:
            case str():
                return self.redact(value)
            case bytes():
                return self._redact_bytes(value)
            case Mapping():
                fields = cast("Mapping[object, object]", value).items()
                return {
                    name if (name := str(key)) in kept_keys else self.redact(name): self.redact_value(
                        item, depth - 1, kept_keys=kept_keys
                    )
                    for key, item in fields
                }
            case list() | tuple():
                return [self.redact_value(item, depth - 1, kept_keys=kept_keys) for item in cast("list[object]", value)]
            case bool() | None:
                return value
            case int() | float():
                return HIDDEN if self.redact(text := str(value)) != text else value
            case _:
                return value

    def _redact_bytes(self, data: bytes) -> bytes:
        for secret in self._spelt:
            data = data.replace(secret.encode(), HIDDEN.encode())
        return data


def find_url_secrets(urls: Iterable[str]) -> list[str]:
    """The passwords in addresses, decoded."""
    return [unquote(password) for url in urls if (password := urlsplit(url).password)]


def find_named_secrets(environment: Mapping[str, str]) -> list[str]:
    """The values of variables whose names mark them as secret."""
    return [value for name, value in environment.items() if is_secret_name(name)]


def is_secret_name(variable: str) -> bool:
    """Whether the name of a variable marks its value as secret."""
    name = variable.upper()
    return name.endswith(("KEY", "TOKEN", "SECRET", "PASSWORD")) or name == "AWS_BEARER_TOKEN_BEDROCK"


def _is_secret_line(line: str) -> bool:
    """Whether a line probably occurs only in its secret. A short one with blanks is more likely a setting or a text."""
    return not line.startswith("-----") and (len(line) >= MIN_LINE_CHARS or len(line.split()) == 1)


def _in_json(secret: str) -> str:
    return secret.replace("\\", "\\\\").replace('"', '\\"')


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
    """A processor that removes known secrets from every text of an event, whatever their source."""

    def hide_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {key: redactor.redact_value(value) for key, value in event.items()}

    return hide_secrets


def _now() -> str:
    return datetime.now(UTC).isoformat()


class LogStream:
    """A file descriptor for log lines. A line that can't be written, as on a full disk, is lost and counted.

    Logging never fails for the caller. The next line that can be written follows one with the number of lost lines.
    Writing blocks as long as the descriptor does.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lost = 0

    def write(self, text: str) -> int:
        try:
            if self._lost:
                note = {
                    "event": "Could not write log lines",
                    "lost": self._lost,
                    "level": "warning",
                    "timestamp": _now(),
                }
                # The previous line may be cut off. This is no logger call, which would deadlock here.
                self._write_all(f"\n{json.dumps(note)}\n".encode())
                self._lost = 0
            self._write_all(text.encode(errors="backslashreplace"))
        except OSError:
            self._lost += 1
            LOG_LINES_LOST.inc()
        return len(text)

    def flush(self) -> None:
        """Nothing is buffered."""

    def _write_all(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]


def configure_logging(level: str, form: Literal["json", "console"], redactor: Redactor | None = None) -> None:
    """Set up structlog and the standard library's logging for this process; `redactor` knows the configured secrets."""
    stream = LogStream(sys.stderr.fileno())
    renderer = structlog.processors.JSONRenderer() if form == "json" else structlog.dev.ConsoleRenderer()
    bound: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
    ]
    # Last, so that they also see what the other processors added.
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
