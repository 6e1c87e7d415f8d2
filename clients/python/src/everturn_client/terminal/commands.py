"""All commands except chat."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TextIO

from everturn.events.views import StateView, TurnView
from everturn_client.answers import SearchHit
from everturn_client.client import Event, EverturnClient
from everturn_client.errors import ProblemError
from everturn_client.terminal.screen import Piece, Screen
from everturn_client.terminal.turn_printer import TurnPrinter
from everturn_client.terminal.wording import (
    one_line,
    render_agents,
    render_connections,
    render_conversation,
    render_file,
    render_hits,
    render_name,
)

MAX_LISTED = 1000
MAX_HITS = 50
"""The server's maximum per request."""
MAX_OPENINGS = 20
"""How many untitled conversations a list reads to show their first message instead. Only conversations whose first turn
has not ended have no title, so there are few."""


async def run_agents(client: EverturnClient, screen: Screen, *, as_json: bool) -> None:
    """List the agents, the default one first."""
    agents = await client.list_agents()
    if as_json:
        screen.write_raw(json.dumps([agent.model_dump() for agent in agents], ensure_ascii=False).encode())
    elif agents:
        screen.write([Piece("output", render_agents(agents) + "\n")])
    else:
        screen.say("There is no agent that you can use.")


async def run_connections(client: EverturnClient, screen: Screen, *, delete: str | None) -> None:
    """List the connected accounts, or delete the one at the place `agent/server`."""
    if delete is not None:
        bundle_id, _, server = delete.rpartition("/")
        await client.delete_connection(bundle_id, server)
        screen.say("Deleted. The agent asks again before it uses an account there.")
    elif connections := await client.list_connections():
        screen.write([Piece("output", render_connections(connections) + "\n")])
    else:
        screen.say("No account is connected. Agents ask when they need one.")


async def run_list(client: EverturnClient, screen: Screen, *, limit: int, title: str, archived: bool) -> None:
    """List conversations, newest activity first."""
    cursor: str | None = None
    left, openings = min(limit, MAX_LISTED), MAX_OPENINGS
    while left > 0:
        page = await client.list_conversations(
            limit=min(left, 100), cursor=cursor, search=title or None, archived=archived
        )
        for item in page.items:
            state = None
            if not item.title.strip() and openings:
                openings -= 1
                state = await _try_fetch(client, item.conversation_id)
            screen.write([Piece("output", render_conversation(item, state) + "\n")])
        left -= len(page.items)
        cursor = page.next_cursor
        if not cursor or not page.items:
            return


async def _try_fetch(client: EverturnClient, conversation_id: str) -> StateView | None:
    """The state, or None if the conversation was deleted meanwhile."""
    try:
        return await client.fetch(conversation_id)
    except ProblemError as error:
        if error.problem.status != 404:
            raise
        return None


async def run_search(
    client: EverturnClient, screen: Screen, query: str, *, limit: int, conversation_id: str | None
) -> None:
    """Print the hits: each conversation once, in the order of its best hit, with a line per hit."""
    # Summaries and notes are the agent's own: no command could show a hit in them.
    page = await client.search(
        query,
        limit=min(limit, MAX_HITS),
        conversation_id=conversation_id,
        targets=("user", "assistant", "attachment"),
    )
    found: dict[str, list[SearchHit]] = {}
    for hit in page.items:
        found.setdefault(hit.conversation_id, []).append(hit)
    for hits in found.values():
        screen.write([Piece("output", render_hits(hits) + "\n")])
    if not page.items:
        screen.say("No matching messages.")


async def run_rename(client: EverturnClient, screen: Screen, conversation_id: str, title: str) -> None:
    """Change a title."""
    renamed = await client.rename_conversation(conversation_id, title)
    screen.say(f"Renamed to {one_line(renamed.title)}.", "good")


async def run_archive(
    client: EverturnClient, screen: Screen, conversation_ids: Sequence[str], *, archived: bool
) -> None:
    """Archive or unarchive conversations."""
    for conversation_id in conversation_ids:
        await client.archive_conversation(conversation_id, archived=archived)
        screen.say(f"{'Archived' if archived else 'Unarchived'} {conversation_id}.", "good")


async def run_delete(
    client: EverturnClient, screen: Screen, conversation_ids: Sequence[str], *, answers: TextIO | None
) -> bool:
    """Delete conversations. With `answers`, asks before each one; False when one was kept."""
    is_kept = False
    for conversation_id in conversation_ids:
        if answers:
            conversation = await client.get_conversation(conversation_id)
            # Turns can have megabytes, so they are read only if there is no title.
            state = None if conversation.title.strip() else await client.fetch(conversation_id)
            name = render_name(conversation, state)
            screen.write([Piece("info", f'Delete "{name}" with all its messages and files? [y/N] ')])
            answer = await asyncio.to_thread(answers.readline)
            if answer.strip().lower() not in ("y", "yes"):
                screen.say(f"Not deleted: {conversation_id}.")
                is_kept = True
                continue
        await client.delete_conversation(conversation_id)
        screen.say(f"Deleted {conversation_id}.", "good")
    return not is_kept


async def run_fork(
    client: EverturnClient, screen: Screen, conversation_id: str, *, turn_id: str | None, title: str | None
) -> None:
    """Fork a conversation; prints the fork's id to standard output."""
    fork = await client.fork_conversation(conversation_id, turn_id=turn_id, title=title)
    screen.write([Piece("output", f"{fork.conversation_id}\n")])
    forked = "the first message" if fork.turns == 1 else f"the first {fork.turns} messages"
    screen.say(f"Forked {forked} of {fork.forked_from}, with the answers.", "good")


async def run_export(client: EverturnClient, screen: Screen, conversation_id: str, output: Path) -> None:
    """Save a conversation and print the path."""
    saved = await client.export_conversation(conversation_id, output)
    screen.say(f"Saved {saved}", "good")


async def run_show(
    client: EverturnClient, screen: Screen, conversation_id: str, *, all_turns: bool, as_json: bool, command: str
) -> None:
    """Print the last turns of a conversation, one page of the server, or all of them, oldest first."""
    state = await client.fetch(conversation_id)
    while all_turns and state.next_cursor:
        older = await client.fetch(conversation_id, cursor=state.next_cursor)
        update = {"turns": (*older.turns, *state.turns), "next_cursor": older.next_cursor}
        state = state.model_copy(update=update)
    if as_json:
        screen.write_raw(state.model_dump_json().encode())
        return
    screen.say(render_conversation(state.conversation, state))
    if state.next_cursor:
        screen.say(f"Older turns are left out. Show all turns with: {command} show --all {conversation_id}")
    for turn in state.turns:
        _show_turn(screen, turn, command, conversation_id)


def _show_turn(screen: Screen, turn: TurnView, command: str, conversation_id: str) -> None:
    screen.say(f"\n[{turn.ordinal}] {turn.turn_id} {turn.status}")
    screen.write([Piece("output", f"> {turn.text}\n")])
    for file in turn.attachments:
        screen.say(render_file(file, f"{command} download"))
    printer = TurnPrinter(
        show_thinking=False,
        download_command=f"{command} download",
        answer_command=f"{command} answer --conversation {conversation_id}",
    )
    screen.write(printer.render(turn))
    screen.write(printer.end_line())


async def run_download(client: EverturnClient, screen: Screen, artifact_id: str, output: Path) -> None:
    """Save a file and print the path."""
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
    """Send a signal or an event and print its receipt."""
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
    """Answer an approval and print its receipt."""
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
    """Rate a turn."""
    await client.feedback(conversation_id, turn_id, reaction, text)
    screen.say("Feedback saved.", "good")
