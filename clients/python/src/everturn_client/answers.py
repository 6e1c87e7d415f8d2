"""Bodies of requests and responses of the ingress, and bounded reading of responses."""

import json
import re
from collections.abc import Sequence
from email.message import Message
from typing import Any, Literal, TypeVar, cast
from urllib.parse import unquote

import httpx2
from pydantic import BaseModel, ConfigDict, ValidationError

from everturn.bundles.registry import DEFAULT_BUNDLE
from everturn.conversations.model import ConversationView
from everturn.core.errors import Problem
from everturn.events.views import SignalView
from everturn_client.errors import BadAnswer, ProblemError, TooMuch

MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_PROBLEM_FIELDS = 20
_EXTENDED_NAME = re.compile(r";\s*filename\*=utf-8''([^;\s]+)", re.IGNORECASE)
_Answer = TypeVar("_Answer", bound=BaseModel)


class Answer(BaseModel):
    """Base of all responses. Fields of a newer server are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Receipt(Answer):
    """The outcome of a message or signal: `queued` as a turn or for the next one, or the state of a signal.

    `position` is how many turns were ahead of a new one, or more with `position_more`. `file_notices` has a sentence
    for each file that was changed before it was stored.
    """

    state: Literal["queued", "accepted", "applied", "promoted", "expired", "rejected", "retracted"]
    position: int | None = None
    position_more: bool | None = None
    file_notices: tuple[str, ...] = ()


class Accepted(Answer):
    """A message or signal was stored. `signal_id` is set when it was sent to the running turn `turn_id`."""

    conversation_id: str
    turn_id: str
    signal_id: str | None = None
    receipt: Receipt
    events_url: str


class AcceptedSignal(Answer):
    """A signal was stored, opened the turn `turn_id` (no `signal_id`), or waits for the next turn (no `turn_id`)."""

    conversation_id: str
    turn_id: str | None = None
    signal_id: str | None = None
    receipt: Receipt
    events_url: str


class SignalState(Answer):
    """A signal with its receipt."""

    conversation_id: str
    turn_id: str | None = None
    signal: SignalView


class ConversationNow(ConversationView):
    """A conversation. While its turn `turn_id` waits, `position` is how many turns are ahead, or more with
    `position_more`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    turn_id: str | None = None
    position: int | None = None
    position_more: bool | None = None


class Agent(Answer):
    """An agent that this person may use; `starters` are suggested first messages.

    For callers with the role privileged or admin, `error` says why the newest version of its bundle is refused, and
    `problems` what does not work in the version in use. Only they see an agent that is not ready: one without a usable
    version.
    """

    id: str
    title: str
    description: str = ""
    icon: str = ""
    starters: tuple[str, ...] = ()
    is_default: bool = False
    is_ready: bool = True
    error: str | None = None
    problems: tuple[str, ...] = ()


class AgentList(Answer):
    """The agents of a tenant and project."""

    bundles: tuple[Agent, ...]


class Connection(Answer):
    """An account that an agent can use for this person: at the MCP server `server` of the agent `bundle_id`."""

    bundle_id: str
    server: str
    title: str
    connected_at: str


class ConnectionList(Answer):
    """This person's connected accounts."""

    items: tuple[Connection, ...]


class Operation(Answer):
    """Something that an agent's code does for programs. `parameters` is the JSON schema of its arguments; `effect` says
    what repeating a call would do: `pure`, `idempotent` or `irreversible`."""

    name: str
    summary: str = ""
    parameters: dict[str, Any] = {}
    effect: str = "irreversible"
    timeout_s: float = 30.0


class OperationList(Answer):
    """The operations of an agent that this person may call."""

    operations: tuple[Operation, ...]


class OperationResult(Answer):
    """What an operation has returned."""

    result: Any


def try_find_agent(agents: Sequence[Agent], bundle_id: str | None) -> Agent | None:
    """The agent with this id; for None and `default` the one that answers if none is chosen."""
    found = next((agent for agent in agents if agent.id == bundle_id), None)
    if found or bundle_id not in (None, DEFAULT_BUNDLE):
        return found
    return next((agent for agent in agents if agent.is_default), None)


class ConversationPage(Answer):
    """Conversations, newest activity first; `next_cursor` continues, None at the end."""

    items: tuple[ConversationView, ...]
    next_cursor: str | None = None


class Erased(Answer):
    """The result of an erasure: deleted rows per table, and deleted objects."""

    conversation_id: str
    rows: dict[str, int] = {}
    objects: int = 0


class Fork(Answer):
    """A new conversation with the first `turns` turns of `forked_from`."""

    conversation_id: str
    forked_from: str
    turns: int


class SearchHit(Answer):
    """A matching text. `ref` names the full text, `title` is the current title of its conversation."""

    conversation_id: str
    title: str
    turn_id: str
    target: str
    ref: str
    snippet: str
    ts: str


class SearchPage(Answer):
    """Hits, the best first; `next_cursor` continues, None at the end."""

    items: tuple[SearchHit, ...]
    next_cursor: str | None = None


async def read_body(response: httpx2.Response, *, max_bytes: int = MAX_ANSWER_BYTES) -> bytes:
    """Read the whole body. Raises TooMuch."""
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > max_bytes:
            raise TooMuch(f"The response is larger than {max_bytes:,} bytes.")
    return bytes(body)


def parse_answer(kind: type[_Answer], body: bytes) -> _Answer:
    """Parse a response body. Raises BadAnswer."""
    try:
        return kind.model_validate_json(body, extra="ignore")
    except ValidationError as error:
        raise BadAnswer(f"It is not a valid {kind.__name__}.") from error


def build_problem(response: httpx2.Response, body: bytes) -> ProblemError:
    """Build the error of a response, even if its body is not a problem document."""
    fields = _read_fields(body)
    status = response.status_code
    problem = Problem(
        type=_text(fields.get("type")) or "about:blank",
        title=_text(fields.get("title")) or response.reason_phrase or "Error",
        status=status,
        detail=_text(fields.get("detail")),
    )
    errors = fields.get("errors")
    fields = [_describe(item) for item in cast(list[object], errors)] if isinstance(errors, list) else []
    return ProblemError(
        problem, fields=tuple(fields[:MAX_PROBLEM_FIELDS]), retry_after_s=try_read_retry_after(response)
    )


def try_read_retry_after(response: httpx2.Response) -> float | None:
    """The seconds of a Retry-After field; a date counts as absent."""
    value = response.headers.get("retry-after", "")
    return float(value) if value.isascii() and value.isdigit() and len(value) < 6 else None


def try_read_filename(response: httpx2.Response) -> str | None:
    """The file name in Content-Disposition (RFC 6266): the extended one, otherwise the plain one."""
    value = response.headers.get("content-disposition", "")
    extended = _EXTENDED_NAME.search(value)
    if extended:
        return unquote(extended.group(1), errors="replace")
    message = Message()
    message["content-disposition"] = value
    return message.get_filename()


def _read_fields(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value[:2000] if isinstance(value, str) else ""


def _describe(item: object) -> str:
    if not isinstance(item, dict):
        return _text(item)
    fields = cast(dict[str, object], item)
    return f"{_text(fields.get('field'))}: {_text(fields.get('message'))}"
