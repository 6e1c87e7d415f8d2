"""Takes the secrets that this process was configured with out of what leaves it: results of tools, and logs."""

from collections.abc import Iterable, Mapping
from typing import Final, cast
from urllib.parse import quote, unquote, urlsplit

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
