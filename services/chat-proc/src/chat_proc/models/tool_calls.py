"""Tool calls as servers stream them: finds out which delta belongs to which call of a reply.

docs/models.md lists what servers send. A call begins with a delta that has a name and belongs to no call so far. All
other deltas continue one; what belongs to no call is skipped, because a call without a name can't be run.
"""

import json
from dataclasses import dataclass, field

from chat_proc.models.json_values import JsonDepth
from chat_proc.models.replies import try_read_token
from everturn.models.port import ToolCallDelta


@dataclass(slots=True)
class _Call:
    """A call so far. `number` counts from 0 in the order in which the calls begin."""

    number: int
    call_id: str
    name: str
    depth: JsonDepth = field(default_factory=JsonDepth)
    """How deep its arguments so far are nested."""

    @property
    def is_complete(self) -> bool:
        """Whether its arguments so far end with a whole object."""
        return self.depth.deepest > 0 and self.depth.depth == 0


class ToolCallReader:
    """Reads the deltas of one reply, in order. Their values can have any JSON shape."""

    def __init__(self) -> None:
        self._count = 0
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._last: _Call | None = None

    def read(self, *, index: object, call_id: object, name: object, arguments: object) -> ToolCallDelta | None:
        """The piece of a call that a delta carries, if any. `index` and `call_id` are the server's own."""
        place = index if isinstance(index, int) and not isinstance(index, bool) else None
        token, title, text = try_read_token(call_id) or "", try_read_token(name) or "", _read_arguments(arguments)
        call = self._find(place, token)
        begins = bool(title) and (call is None or _is_another(call, token, title, text))
        if begins:
            call = _Call(self._count, token, title)
            self._count += 1
        if call is None or not (begins or text):
            return None
        self._last = call
        if place is not None:
            self._by_index[place] = call
        if token:
            self._by_id[token] = call
        call.depth.advance(text)
        if begins:
            return ToolCallDelta(call.number, text, call.name, call.call_id)
        return ToolCallDelta(call.number, text)

    def _find(self, index: int | None, call_id: str) -> _Call | None:
        """The call that a delta continues, unless it begins another one."""
        if index is not None:
            return self._by_index.get(index)
        return self._by_id.get(call_id, self._last)


def _is_another(call: _Call, call_id: str, name: str, text: str) -> bool:
    """Whether a delta with a name is not a part of this call, although it has the same index, or no index."""
    if call_id and call.call_id and call_id != call.call_id:
        return True
    if name != call.name:
        return True
    # Some servers repeat id and name with each part of a call, and others send several calls with the same ones.
    return text.lstrip().startswith("{") and call.is_complete


def _read_arguments(arguments: object) -> str:
    """The next text of the arguments. Some servers send the whole JSON object in its place."""
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    try:
        return json.dumps(arguments, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return ""
