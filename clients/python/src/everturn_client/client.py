"""The SDK: all operations of a chat client on an Everturn server, over REST and server-sent events."""

import asyncio
import json
import os
import random as randomness
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote

import httpx2

from everturn.conversations.model import ConversationView
from everturn.events.fold import fold_event, is_open
from everturn.events.model import Envelope, StreamSnapshot
from everturn.events.views import StateView, TurnView
from everturn_client.answers import (
    Accepted,
    AcceptedSignal,
    Agent,
    AgentList,
    Connection,
    ConnectionList,
    ConversationNow,
    ConversationPage,
    Erased,
    Fork,
    Operation,
    OperationList,
    OperationResult,
    SearchPage,
    parse_answer,
    try_read_filename,
)
from everturn_client.backoff import Timings
from everturn_client.errors import TimedOut, TooMuch, Unreachable
from everturn_client.event_stream import EventStream
from everturn_client.requests import Connections, Requests
from everturn_client.sent_signals import SentSignals
from everturn_client.uploads import Upload, build_free_path, load_uploads

MAX_DOWNLOAD_BYTES = 1024**3
TURN_LIMIT_S = 7200.0
"""Longer than any turn can take by the server's own cap of 30 minutes, including the time it can wait in the queue."""


@dataclass(frozen=True, slots=True)
class Event:
    """An external event. `kind` is one that the server accepts, such as `form`, `wizard` or `alert`.

    A `reactive` event makes the agent act and adds `iteration_credit` rounds to its turn; any other is only recorded.
    """

    kind: str
    payload: Mapping[str, Any] = field(default_factory=lambda: {})
    reactive: bool = True
    iteration_credit: int = 0


@dataclass(frozen=True, slots=True)
class Followed:
    """One event and the resulting state. `turn` is the followed turn, None until the stream mentions it."""

    envelope: Envelope
    state: StateView
    turn: TurnView | None


class EverturnClient:
    """One user's access to one tenant and project. Use as an async context manager, or call `aclose`.

    All methods raise ProblemError when the server rejects the request, Unreachable when it does not answer, BadAnswer
    and TooMuch for responses that are unreadable or too large. A token or user name that no header can carry raises
    BadInput at once. `dev_user` names a user in the server's development mode. `connections` bounds how many are open:
    100 for calls and, apart from them, 100 for streams. `report_unreachable` is called once for each request that waits
    for the server as `Timings.reconnect_s` allows.
    """

    def __init__(
        self,
        base_url: str,
        tenant: str = "default",
        project: str = "default",
        *,
        token: str | None = None,
        dev_user: str | None = None,
        timings: Timings | None = None,
        connections: Connections | None = None,
        random: Callable[[], float] = randomness.random,
        report_unreachable: Callable[[Unreachable], None] | None = None,
    ) -> None:
        self.base_url = base_url
        self._scope = f"{quote(tenant, safe='')}/{quote(project, safe='')}"
        self._timings = timings or Timings()
        self._random = random
        self.requests = Requests(
            base_url,
            token=token,
            dev_user=dev_user,
            timings=self._timings,
            random=random,
            connections=connections,
            report_unreachable=report_unreachable,
        )
        self.signals = SentSignals(self.requests, self._path)
        """Reads receipts of signals, and edits or retracts signals that were not applied yet."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        await self.requests.aclose()

    async def list_agents(self) -> tuple[Agent, ...]:
        """The agents that this user may use, the default one first. `id` is the `bundle_id` of the other methods."""
        return parse_answer(AgentList, await self.requests.send("GET", f"/bundles/{self._scope}")).bundles

    async def list_operations(self, bundle_id: str) -> tuple[Operation, ...]:
        """The operations of an agent that this user may call, by name."""
        body = await self.requests.send("GET", self._operations_path(bundle_id))
        return parse_answer(OperationList, body).operations

    async def call_operation(self, bundle_id: str, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Call an operation of an agent with these arguments, and return its result.

        It is never repeated. After a ProblemError with a status below 500, or 503, it had no effect unless its author
        says so; after any other error it may have had one.
        """
        path = f"{self._operations_path(bundle_id)}/{quote(name, safe='')}"
        body = await self.requests.send("POST", path, json=dict(arguments or {}))
        return parse_answer(OperationResult, body).result

    async def list_connections(self) -> tuple[Connection, ...]:
        """The accounts at MCP servers that agents can use for this user, the latest first."""
        return parse_answer(ConnectionList, await self.requests.send("GET", f"/mcp-connections/{self._scope}")).items

    async def delete_connection(self, bundle_id: str, server: str) -> None:
        """Delete a connected account. The agent asks again before it uses one."""
        place = f"{quote(bundle_id, safe='')}/{quote(server, safe='')}"
        await self.requests.send("DELETE", f"/mcp-connections/{self._scope}/{place}")

    def _operations_path(self, bundle_id: str) -> str:
        return f"/bundles/{self._scope}/{quote(bundle_id, safe='')}/operations"

    async def create_conversation(self, title: str = "", *, bundle_id: str | None = None) -> ConversationView:
        """Create a conversation. `send_message` to "new" does so too."""
        body = _without_none({"title": title, "bundle_id": bundle_id})
        return parse_answer(ConversationView, await self.requests.send("POST", self._path(), json=body))

    async def list_conversations(
        self, *, limit: int = 50, cursor: str | None = None, search: str | None = None, archived: bool = False
    ) -> ConversationPage:
        """One page, most recently active first. `search` is a part of the title; with `archived` only archived ones are
        listed."""
        params = _without_none({"limit": limit, "cursor": cursor, "q": search, "archived": archived or None})
        return parse_answer(ConversationPage, await self.requests.send("GET", self._path(), params=params))

    async def get_conversation(self, conversation_id: str) -> ConversationNow:
        """Title, state and times; while it waits, its queue position."""
        return parse_answer(ConversationNow, await self.requests.send("GET", self._path(conversation_id)))

    async def rename_conversation(self, conversation_id: str, title: str) -> ConversationView:
        """Change the title."""
        body = await self.requests.send("PATCH", self._path(conversation_id), json={"title": title})
        return parse_answer(ConversationView, body)

    async def archive_conversation(self, conversation_id: str, *, archived: bool = True) -> ConversationView:
        """Archive or unarchive a conversation."""
        body = await self.requests.send(
            "PATCH", self._path(conversation_id), json={"archived": archived}, is_repeatable=True
        )
        return parse_answer(ConversationView, body)

    async def fork_conversation(
        self, conversation_id: str, *, turn_id: str | None = None, title: str | None = None
    ) -> Fork:
        """Copy everything up to the end of `turn_id` (default: the last ended turn) to a new conversation."""
        body = _without_none({"turn_id": turn_id, "title": title})
        return parse_answer(Fork, await self._submit(self._path(conversation_id, "fork"), body, ()))

    async def export_conversation(
        self, conversation_id: str, destination: Path, *, max_bytes: int = MAX_DOWNLOAD_BYTES
    ) -> Path:
        """Save a conversation as JSON Lines with its hashes, like `download` saves a file."""
        return await self._save(self._path(conversation_id, "export"), {}, destination, conversation_id, max_bytes)

    async def search(
        self,
        query: str,
        *,
        limit: int = 10,
        conversation_id: str | None = None,
        targets: Sequence[Literal["user", "assistant", "attachment", "summary", "notes"]] | None = None,
    ) -> SearchPage:
        """Search the messages of all conversations, or of one. The best hits are first.

        `targets` are the kinds of texts, all by default; summaries and notes are what the agent wrote for itself.
        """
        kinds = None if targets is None else list(targets)
        fields = _without_none({"query": query, "limit": limit, "conversation_id": conversation_id, "targets": kinds})
        body = await self.requests.send("POST", self._path("search"), json=fields, is_repeatable=True)
        return parse_answer(SearchPage, body)

    async def delete_conversation(self, conversation_id: str) -> Erased:
        """Erase the conversation with all that belongs to it."""
        return parse_answer(Erased, await self.requests.send("DELETE", self._path(conversation_id)))

    async def send_message(
        self,
        conversation_id: str,
        text: str,
        *,
        files: Sequence[Path] = (),
        bundle_id: str | None = None,
        kind: Literal["followup", "steer"] | None = None,
        target_turn_id: str | None = None,
        time_zone: str | None = None,
    ) -> Accepted:
        """Send a message, to "new" for a new conversation. Retried when the connection breaks, without duplicates.

        While a turn runs, the message becomes a signal for that turn. Raises OSError for files that can't be read.
        `time_zone` is the person's, an IANA name such as Europe/Berlin; a name that the server does not know is a 422.
        """
        uploads = await asyncio.to_thread(load_uploads, files)
        fields = {
            "text": text,
            "bundle_id": bundle_id,
            "kind": kind,
            "target_turn_id": target_turn_id,
            "time_zone": time_zone,
        }
        body = await self._submit(self._path(conversation_id, "messages"), _without_none(fields), uploads)
        return parse_answer(Accepted, body)

    async def send_signal(
        self,
        conversation_id: str,
        kind: Literal["followup", "steer", "cancel"],
        text: str = "",
        *,
        files: Sequence[Path] = (),
        target_turn_id: str | None = None,
    ) -> AcceptedSignal:
        """Send a signal to the running turn. A steer without text makes it stop with what it has, a cancel ends it."""
        fields = {"kind": kind, "text": text, "target_turn_id": target_turn_id}
        return await self._send_signal(conversation_id, fields, files)

    async def answer_approval(
        self, conversation_id: str, approval_id: str, kind: Literal["approve", "deny"], reason: str = ""
    ) -> AcceptedSignal:
        """Approve or deny a tool call. Turns list requests as `approvals`; those without an answer are `pending`.

        Raises ProblemError: 404 if this conversation has no such approval, 409 if it was already settled differently,
        or is approved although it asks to connect an account at its `connect_url`.
        """
        fields = {"kind": kind, "text": reason, "approval_id": approval_id}
        return await self._send_signal(conversation_id, fields, ())

    async def send_event(
        self,
        conversation_id: str,
        event: Event,
        text: str = "",
        *,
        files: Sequence[Path] = (),
        target_turn_id: str | None = None,
    ) -> AcceptedSignal:
        """Send an external event. Without a running turn a reactive event opens one; any other waits for the next."""
        fields = {"kind": "event", "text": text, "event": asdict(event), "target_turn_id": target_turn_id}
        return await self._send_signal(conversation_id, fields, files)

    async def fetch(
        self, conversation_id: str, *, turn_ids: Sequence[str] | None = None, cursor: str | None = None
    ) -> StateView:
        """The conversation with its last turns, those before `cursor`, or the named ones.

        A page has up to 4 MiB of stored text, or one larger turn; `next_cursor` gets older turns, None when there are
        none.
        """
        named = None if turn_ids is None else list(turn_ids)
        body = _without_none({"conversation_id": conversation_id, "turn_ids": named, "cursor": cursor})
        return parse_answer(
            StateView, await self.requests.send("POST", self._path("fetch"), json=body, is_repeatable=True)
        )

    async def feedback(
        self, conversation_id: str, turn_id: str, reaction: Literal["ok", "not_ok", "neutral"] | None, text: str = ""
    ) -> None:
        """Rate a turn; a second rating replaces the first, None clears it."""
        path = self._path(conversation_id, "turns", turn_id, "feedback")
        await self.requests.send("POST", path, json={"reaction": reaction, "text": text}, is_repeatable=True)

    async def download(self, artifact_id: str, destination: Path, *, max_bytes: int = MAX_DOWNLOAD_BYTES) -> Path:
        """Save a file; returns its path. In a folder it gets a free name; an existing file is replaced.

        An interrupted download leaves nothing behind. Raises OSError when it can't be written.
        """
        path = f"/files/{self._scope}/{quote(artifact_id, safe='')}"
        return await self._save(path, {"download": "1"}, destination, artifact_id, max_bytes)

    def events(self, conversation_id: str, after: str | None = None) -> AsyncGenerator[Envelope, None]:
        """The conversation's events, endlessly: without `after` a snapshot and all later events, otherwise all after
        that id.

        Reconnects by itself. Close the generator (`contextlib.aclosing`) when you leave it early: until then it holds
        one of `Connections.streams`. Raises TooMuch when all of them are in use.
        """
        path = self._path(conversation_id, "events")
        return EventStream(self.requests.streams, path, after=after, timings=self._timings, random=self._random).run()

    async def follow_turn(
        self, conversation_id: str, turn_id: str, *, limit_s: float = TURN_LIMIT_S
    ) -> AsyncGenerator[Followed, None]:
        """Each event with the folded state, from a snapshot to the end of the turn. Raises TimedOut."""
        state: StateView | None = None
        deadline = asyncio.get_running_loop().time() + limit_s
        async with aclosing(self.events(conversation_id)) as envelopes:
            while True:
                envelope = await _next_before(deadline, envelopes)
                if isinstance(envelope.data, StreamSnapshot):
                    state = envelope.data.state
                    if state.next_cursor and all(turn.turn_id != turn_id for turn in state.turns):
                        # Later turns fill the snapshot. No event will come for this one if it has ended.
                        state = await self._add_turn(state, conversation_id, turn_id, deadline)
                elif state:
                    state = fold_event(state, envelope)
                if state is None:
                    continue
                turn = next((turn for turn in state.turns if turn.turn_id == turn_id), None)
                yield Followed(envelope, state, turn)
                if turn and not is_open(turn):
                    return

    async def _add_turn(self, state: StateView, conversation_id: str, turn_id: str, deadline: float) -> StateView:
        try:
            async with asyncio.timeout_at(deadline):
                found = await self.fetch(conversation_id, turn_ids=[turn_id])
        except TimeoutError as error:
            raise TimedOut() from error
        return state.model_copy(update={"turns": (*found.turns, *state.turns)})

    async def _save(
        self, path: str, params: Mapping[str, Any], destination: Path, fallback_name: str, max_bytes: int
    ) -> Path:
        async with self.requests.stream("GET", path, params=params) as response:
            name = try_read_filename(response) or fallback_name
            destination = await asyncio.to_thread(_choose_path, destination, name)
            await _save_stream(response, destination, max_bytes)
        return destination

    async def _send_signal(
        self, conversation_id: str, fields: Mapping[str, Any], files: Sequence[Path]
    ) -> AcceptedSignal:
        uploads = await asyncio.to_thread(load_uploads, files)
        body = await self._submit(self._path(conversation_id, "signals"), _without_none(fields), uploads)
        return parse_answer(AcceptedSignal, body)

    async def _submit(self, path: str, fields: Mapping[str, Any], uploads: Sequence[Upload]) -> bytes:
        key = str(uuid.uuid4())
        if not uploads:
            return await self.requests.send("POST", path, json=fields, key=key)
        message = (None, json.dumps(fields).encode(), "application/json")
        parts = [("files", (upload.filename, upload.data, upload.mime)) for upload in uploads]
        return await self.requests.send("POST", path, parts=[("message", message), *parts], key=key)

    def _path(self, *parts: str) -> str:
        return "/".join(["/conversations", self._scope, *(quote(part, safe="") for part in parts)])


async def _next_before(deadline: float, envelopes: AsyncGenerator[Envelope, None]) -> Envelope:
    try:
        async with asyncio.timeout_at(deadline):
            return await anext(envelopes)
    except TimeoutError as error:
        raise TimedOut() from error


def _choose_path(destination: Path, name: str) -> Path:
    return build_free_path(destination, name) if destination.is_dir() else destination


async def _save_stream(response: httpx2.Response, destination: Path, max_bytes: int) -> None:
    part = destination.with_name(f".{destination.name}.{uuid.uuid4().hex[:8]}.part")
    taken = 0
    try:
        with part.open("xb") as file:
            async for chunk in response.aiter_bytes():
                taken += len(chunk)
                if taken > max_bytes:
                    raise TooMuch(f"The file is larger than {max_bytes:,} bytes.")
                await asyncio.to_thread(file.write, chunk)
        os.replace(part, destination)
    finally:
        part.unlink(missing_ok=True)


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
