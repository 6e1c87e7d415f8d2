"""Sends messages as a person would, and measures when each stage of their turns is seen.

The listener stays connected between the messages, as a browser does. A turn that has ended by a fresh request, but not
for the listener, shows that events no longer reach clients.
"""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Literal

from everturn.core.cancellation import end_tasks
from everturn.core.errors import EverturnError
from everturn.events.fold import fold_event, is_open
from everturn.events.model import StreamSnapshot
from everturn.events.views import StateView, TurnView
from everturn_client.client import EverturnClient

Stage = Literal["accepted", "started", "answering", "ended"]
Outcome = Literal["ok", "rejected", "failed", "late", "deaf"]
MAX_TURNS = 20
"""Turns of one conversation; then it is deleted, and another one is created."""
DELETE_LIMIT_S = 10.0
GRACE_S = 5.0
"""How long an event can follow its commit before the listener counts as deaf."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One message.

    `outcome`: `ok`; `rejected`, nothing accepted it; `failed`, its turn ended without a complete answer; `late`, its
    turn did not end in time; `deaf`, its turn ended, and the listener received no event of that. `seen_s` has the
    seconds from the request to each stage that was seen, `detail` what went wrong.
    """

    outcome: Outcome
    seen_s: Mapping[Stage, float] = field(default_factory=dict[Stage, float])
    detail: str = ""


class Canary:
    """Asks `agent` the same `text` again and again. `limit_s` is for all stages of one message."""

    def __init__(self, client: EverturnClient, agent: str, text: str, *, limit_s: float) -> None:
        self._client = client
        self._agent = agent
        self._text = text
        self._limit_s = limit_s
        self._listener: _Listener | None = None

    async def read(self) -> Reading:
        """Send one message, and wait for the end of its turn. Bounded by twice `limit_s`, GRACE_S and
        DELETE_LIMIT_S."""
        reading = await self._read()
        if reading.outcome != "ok" or (self._listener is not None and len(self._listener.turns) >= MAX_TURNS):
            # A turn that still runs would take the next message for itself, and a deaf listener must connect again.
            await self.aclose()
        return reading

    async def aclose(self) -> None:
        """Disconnect, and delete the conversation if the server allows it."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        await end_tasks(listener.task)
        with suppress(EverturnError, TimeoutError):
            async with asyncio.timeout(DELETE_LIMIT_S):
                await self._client.delete_conversation(listener.conversation_id)

    async def _read(self) -> Reading:
        seen_s: dict[Stage, float] = {}
        turn_id = None
        try:
            async with asyncio.timeout(self._limit_s):
                listener = self._listener = self._listener or await self._open_listener()
                await listener.begin()
                begun_s = _now()
                turn_id = (await self._client.send_message(listener.conversation_id, self._text)).turn_id
                seen_s["accepted"] = _now() - begun_s
                try:
                    turn = await listener.wait_ended(turn_id)
                finally:
                    at_s = listener.turns.get(turn_id, {})
                    seen_s.update((stage, max(0.0, second - begun_s)) for stage, second in at_s.items())
        except TimeoutError:
            return await self._explain_silence(turn_id, seen_s)
        except EverturnError as error:
            return Reading("failed" if turn_id else "rejected", seen_s, str(error))
        if turn.status == "completed" and turn.outcome == "completed" and turn.answer:
            return Reading("ok", seen_s)
        reason = turn.error.detail or turn.error.title if turn.error else turn.cut_reason or turn.outcome or "no answer"
        return Reading("failed", seen_s, f"The turn {turn_id} ended as {turn.status}: {reason}.".replace("..", "."))

    async def _open_listener(self) -> "_Listener":
        created = await self._client.create_conversation("Canary", bundle_id=self._agent)
        return _Listener(self._client, created.conversation_id)

    async def _explain_silence(self, turn_id: str | None, seen_s: Mapping[Stage, float]) -> Reading:
        listener, limit = self._listener, f"within {self._limit_s:g} s"
        if listener is None or turn_id is None:
            what = "The message was not accepted" if listener and listener.has_begun else "No stream of events began"
            return Reading("rejected", seen_s, f"{what} {limit}.")
        try:
            async with asyncio.timeout(self._limit_s):
                found = (await self._client.fetch(listener.conversation_id, turn_ids=[turn_id])).turns
        except (EverturnError, TimeoutError):
            found = ()
        if found and not is_open(found[0]):
            try:
                async with asyncio.timeout(min(GRACE_S, self._limit_s)):
                    await listener.wait_ended(turn_id)
            except (EverturnError, TimeoutError):
                return Reading("deaf", seen_s, f"The turn {turn_id} has ended, and its event did not arrive {limit}.")
        return Reading("late", seen_s, f"The turn {turn_id} did not end {limit}.")


class _Listener:
    """Follows one conversation. `turns` has, for each turn and stage, when it was first seen, by `_now`."""

    def __init__(self, client: EverturnClient, conversation_id: str) -> None:
        self.conversation_id = conversation_id
        self.turns: dict[str, dict[Stage, float]] = {}
        self.has_begun = False
        self._client = client
        self._views: dict[str, TurnView] = {}
        self._changed = asyncio.Event()
        self.task = asyncio.create_task(self._run(), name="listener of the canary")

    async def begin(self) -> None:
        """Wait for the first snapshot. Raises what ended the stream, also if that was between two messages."""
        while not self.has_begun or self.task.done():
            await self._wait_for_change()

    async def wait_ended(self, turn_id: str) -> TurnView:
        """The turn once the stream has shown its end. Raises what ended the stream."""
        while (turn := self._views.get(turn_id)) is None or is_open(turn):
            await self._wait_for_change()
        return turn

    async def _wait_for_change(self) -> None:
        if not self.task.done():
            self._changed.clear()
            await self._changed.wait()
        if self.task.done():
            self.task.result()

    async def _run(self) -> None:
        state: StateView | None = None
        try:
            async with aclosing(self._client.events(self.conversation_id)) as envelopes:
                async for envelope in envelopes:
                    if isinstance(envelope.data, StreamSnapshot):
                        state = envelope.data.state
                    elif state is not None:
                        state = fold_event(state, envelope)
                    if state is not None and state.turns:
                        self._note(state.turns[-1])
                    self.has_begun = state is not None
                    self._changed.set()
        finally:
            self._changed.set()

    def _note(self, turn: TurnView) -> None:
        self._views[turn.turn_id] = turn
        at_s = self.turns.setdefault(turn.turn_id, {})
        has_ended = not is_open(turn)
        stages: dict[Stage, bool] = {
            "started": has_ended or turn.status != "queued",
            "answering": bool(turn.answer) or any(text.channel == "answer" and text.text for text in turn.texts),
            "ended": has_ended,
        }
        for stage, is_seen in stages.items():
            if is_seen:
                at_s.setdefault(stage, _now())


def _now() -> float:
    return asyncio.get_running_loop().time()
