"""Checks responses against the OpenAPI document: an undocumented status is a mistake of one of the two."""

import re
from typing import Any

import httpx2

UNDOCUMENTED = frozenset({"/", "/docs", "/openapi.json", "/socket.io/"})
UNDOCUMENTED_FOLDERS = ("/assets/", "/widgets/", "/embed/", "/mcp-connections/callback/")
"""Served for people and sockets, and no part of the document."""


class Documented:
    """The operations of a document, and whether it describes their responses."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.paths: dict[str, Any] = document["paths"]
        # The most particular first: `/fetch` before `/{conversation_id}`.
        templates = sorted(self.paths, key=lambda path: path.count("{"))
        self._patterns = [(_read_template(path), path) for path in templates]

    def check(self, method: str, path: str, status: int) -> None:
        """Raises AssertionError for an answer that the document does not name.

        What it does not offer is absent or not allowed; HEAD is that, or answered as GET.
        """
        if path in UNDOCUMENTED or path.startswith(UNDOCUMENTED_FOLDERS) or method == "OPTIONS":
            return
        template = next((it for pattern, it in self._patterns if pattern.fullmatch(path)), None)
        operations = self.paths.get(template, {})
        own = operations.get(method.lower())
        documented = {"404", "405"} if own is None else set(own["responses"])
        if own is None and method == "HEAD" and "get" in operations:
            documented |= set(operations["get"]["responses"])
        assert str(status) in documented, (
            f"{method} {template} answered {status}, and the document has {sorted(documented)}"
        )

    async def check_response(self, response: httpx2.Response) -> None:
        """The same as a hook of a client."""
        request = response.request
        self.check(request.method, request.url.raw_path.decode().partition("?")[0], response.status_code)


def _read_template(path: str) -> re.Pattern[str]:
    return re.compile("".join("[^/]+" if part.startswith("{") else re.escape(part) for part in _PARTS.split(path)))


_PARTS = re.compile(r"(\{[^}]+\})")
