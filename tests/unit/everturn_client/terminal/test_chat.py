"""A chat that can't read its keyboard."""

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from everturn.events.fold import fold_event
from everturn.events.turn_view import build_state
from everturn.timeline.turns import Outcome
from everturn_client.terminal.chat import NEW, Chat, ChatOptions
from everturn_client.terminal.last_conversation import LastConversations
from everturn_client.terminal.screen import Screen
from everturn_testing.events.scenarios import PROJECT, TENANT
from everturn_testing.turns.approval_scenarios import ApprovalScenario

NO_KEYBOARD = 1_000_000
"""No process has as many open files."""


class Client:
    """Shows a scenario, with the loop turning between its events."""

    def __init__(self, scenario: ApprovalScenario) -> None:
        self._scenario = scenario

    async def send_message(self, *_: object, **__: object) -> SimpleNamespace:
        receipt = SimpleNamespace(file_notices=(), position=None)
        turn_id = self._scenario.records[-1].turn.id
        return SimpleNamespace(conversation_id="conv_1", turn_id=turn_id, receipt=receipt)

    async def follow_turn(self, *_: object) -> AsyncIterator[SimpleNamespace]:
        state = build_state(self._scenario.pages[0], tenant=TENANT, project=PROJECT)
        for event in self._scenario.events:
            state = fold_event(state, event)
            yield SimpleNamespace(envelope=event, turn=state.turns[-1])
            for _ in range(3):
                await asyncio.sleep(0)


async def test_a_keyboard_that_can_not_be_read_is_reported(tmp_path: Path) -> None:
    scenario = ApprovalScenario()
    scenario.start_turn("Send it")
    scenario.start_round()
    call_id = scenario.add_call("mail.send", {"to": "ann"})
    approval_id = scenario.ask(call_id, "mail.send", {"to": "ann"})
    scenario.commit()
    scenario.show_step(call_id)
    scenario.show_question(call_id)
    scenario.settle_question(call_id, "approved")
    scenario.end_turn(Outcome.COMPLETED)
    client: Any = Client(scenario)
    memory = LastConversations(tmp_path, "here")
    shown = io.StringIO()
    chat = Chat(client, Screen(io.StringIO(), shown, colour=False), ChatOptions(), conversation_id=NEW, memory=memory)

    turn = await chat.run_once("Send it", (), keyboard=NO_KEYBOARD)

    assert turn.outcome == Outcome.COMPLETED
    assert "Can't read your input any more: OSError" in shown.getvalue()
    assert f"everturn answer --conversation conv_1 {approval_id} approve" in shown.getvalue()
