"""The commands besides chat: list, show, download, judge."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from everturn.wire.views import TurnView
from everturn_client.client import Event, EverturnClient
from everturn_client.terminal.screen import Piece, Screen
from everturn_client.terminal.turn_printer import TurnPrinter
from everturn_client.terminal.wording import render_conversation, render_file

MAX_LISTED = 1000


async def run_conversations(client: EverturnClient, screen: Screen, *, limit: int) -> None:
    """List conversations, newest activity first."""
    cursor: str | None = None
    left = min(limit, MAX_LISTED)
    while left > 0:
        page = await client.list_conversations(limit=min(left, 100), cursor=cursor)
        screen.write(Piece("answer", render_conversation(item) + "\n") for item in page.items)
        left -= len(page.items)
        cursor = page.next_cursor
        if not cursor or not page.items:
            return


async def run_show(
    client: EverturnClient, screen: Screen, conversation_id: str, *, as_json: bool, command: str
) -> None:
    """Print the last turns of a conversation."""
    state = await client.fetch(conversation_id)
    if as_json:
        screen.write_raw(state.model_dump_json().encode())
        return
    screen.say(render_conversation(state.conversation))
    for turn in state.turns:
        _show_turn(screen, turn, command)
    if state.next_cursor:
        screen.say("There are older turns, which this command does not show.")


def _show_turn(screen: Screen, turn: TurnView, command: str) -> None:
    screen.say(f"\n[{turn.ordinal}] {turn.turn_id} {turn.status}")
    screen.write([Piece("answer", f"> {turn.text}\n")])
    for file in turn.attachments:
        screen.say(render_file(file, f"{command} download"))
    printer = TurnPrinter(show_thinking=False, download_command=f"{command} download")
    screen.write(printer.render(turn))
    screen.write(printer.end_line())


async def run_download(client: EverturnClient, screen: Screen, artifact_id: str, output: Path) -> None:
    """Save a file and say where."""
    saved = await client.download(artifact_id, output)
    screen.say(f"Saved {saved}", "good")


async def run_signal(
    client: EverturnClient,
    screen: Screen,
    conversation_id: str,
    text: str,
    *,
    what: Event | Literal["followup", "steer", "cancel"],
    files: Sequence[Path],
    target_turn_id: str | None,
) -> None:
    """Send a signal or an event and say what became of it."""
    if isinstance(what, Event):
        accepted = await client.send_event(conversation_id, what, text, files=files, target_turn_id=target_turn_id)
    else:
        accepted = await client.send_signal(conversation_id, what, text, files=files, target_turn_id=target_turn_id)
    place = f"turn {accepted.turn_id}" if accepted.turn_id else "the next turn"
    name = f" {accepted.signal_id}" if accepted.signal_id else ""
    screen.say(f"Signal{name} {accepted.receipt.state} for {place}.", "good")


async def run_answer(
    client: EverturnClient,
    screen: Screen,
    conversation_id: str,
    approval_id: str,
    *,
    kind: Literal["approve", "deny"],
    reason: str,
) -> None:
    """Answer an approval and say what became of it."""
    accepted = await client.answer_approval(conversation_id, approval_id, kind, reason)
    screen.say(f"Answer {accepted.receipt.state} for turn {accepted.turn_id}.", "good")


async def run_feedback(
    client: EverturnClient,
    screen: Screen,
    conversation_id: str,
    turn_id: str,
    *,
    reaction: Literal["ok", "not_ok", "neutral"],
    text: str,
) -> None:
    """Judge a turn."""
    await client.feedback(conversation_id, turn_id, reaction, text)
    screen.say("Thank you.", "good")
