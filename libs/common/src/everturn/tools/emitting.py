"""What a tool tells clients while it works, within caps: a running tool must not flood a person, nor the stream."""

import json
from collections.abc import Mapping
from typing import Any, Literal

from everturn.errors import Conflict, Invalid
from everturn.ports.tool import ToolCall
from everturn.wire.events import ChatTool

MAX_EVENTS = 100
"""Of one call."""
MAX_TEXT_CHARS = 2_000
MAX_DATA_BYTES = 8_192
"""Of one event, as JSON."""


class ToolEvents:
    """The events of one call. They go out through the worker, which alone numbers events; nothing stores them."""

    def __init__(self, call: ToolCall, tool_id: str) -> None:
        self._live = call.context.live
        self._call_id = call.call_id
        self._tool_id = tool_id
        self._left = MAX_EVENTS
        self._closed = False

    def progress(self, text: str) -> None:
        """Say what goes on now; a long text is cut. Raises Conflict after the call, and after too many events."""
        self._emit("progress", text[:MAX_TEXT_CHARS])

    def message(self, text: str) -> None:
        """Say something to the person; otherwise as `progress`."""
        self._emit("message", text[:MAX_TEXT_CHARS])

    def data(self, data: Mapping[str, Any]) -> None:
        """Tell a client that knows this tool. Raises Invalid when it is no JSON or too large; or as `progress`."""
        try:
            encoded = json.dumps(dict(data), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise Invalid(f"The data of an event must be JSON: {error}") from error
        if len(encoded) > MAX_DATA_BYTES:
            raise Invalid(f"The data of an event has {len(encoded)} bytes, at most {MAX_DATA_BYTES} are allowed.")
        self._emit("data", "", json.loads(encoded))

    def close(self) -> None:
        """The call is over: what a task that was left behind still says reaches nobody."""
        self._closed = True

    def _emit(
        self, kind: Literal["progress", "message", "data"], text: str, data: dict[str, Any] | None = None
    ) -> None:
        if self._closed:
            raise Conflict("The call is over.")
        if self._left <= 0:
            raise Conflict(f"A call tells of at most {MAX_EVENTS} events.")
        self._left -= 1
        clean = text.encode("utf-8", "replace").decode()
        self._live.emit(ChatTool(call_id=self._call_id, tool_id=self._tool_id, kind=kind, text=clean, data=data))
