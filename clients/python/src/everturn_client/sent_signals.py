"""Operations on sent signals: read the receipt, edit the text, retract."""

from collections.abc import Callable

from everturn_client.answers import SignalState, parse_answer
from everturn_client.requests import Requests

BuildPath = Callable[[str, str, str], str]
"""Builds the path of a resource of this tenant and project on the server from its last three parts."""


class SentSignals:
    """Signals of one user; all methods raise as those of EverturnClient."""

    def __init__(self, requests: Requests, build_path: BuildPath) -> None:
        self._requests = requests
        self._build_path = build_path

    async def get(self, conversation_id: str, signal_id: str) -> SignalState:
        """A signal with its current receipt."""
        return await self._send("GET", conversation_id, signal_id)

    async def edit(self, conversation_id: str, signal_id: str, text: str) -> SignalState:
        """Change its text; a 409 once it was applied."""
        return await self._send("PATCH", conversation_id, signal_id, {"text": text})

    async def retract(self, conversation_id: str, signal_id: str) -> SignalState:
        """Retract it; a 409 once it was applied. Repeating this is safe."""
        return await self._send("DELETE", conversation_id, signal_id)

    async def _send(
        self, method: str, conversation_id: str, signal_id: str, fields: dict[str, str] | None = None
    ) -> SignalState:
        path = self._build_path(conversation_id, "signals", signal_id)
        # All of them are idempotent.
        body = await self._requests.send(method, path, json=fields, is_repeatable=True)
        return parse_answer(SignalState, body)
