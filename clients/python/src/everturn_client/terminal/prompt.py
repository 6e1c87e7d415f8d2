"""The interactive prompt: messages while nothing runs, followups and commands while a turn runs."""

import asyncio
from dataclasses import dataclass
from typing import assert_never

from everturn.bundles.starters import is_incomplete
from everturn.core.errors import EverturnError
from everturn.events.fold import is_open
from everturn.events.views import SignalView, TurnView
from everturn_client.answers import try_find_agent
from everturn_client.client import EverturnClient
from everturn_client.terminal.chat import NEW, Answer, Chat, try_parse_answer
from everturn_client.terminal.lines import LineReader
from everturn_client.terminal.screen import Piece, Screen
from everturn_client.terminal.wording import one_line, render_file, render_starters

HELP = (
    "Type a message; if the agent is working, it is added to the running turn. Answer an approval request with y or n. "
    "Commands: /steer TEXT, /cancel, /approve, /deny REASON, /files, /quit."
)


@dataclass(frozen=True, slots=True)
class Say:
    """A message, or a followup while a turn runs."""

    text: str


@dataclass(frozen=True, slots=True)
class Steer:
    """Redirect the running turn; a blank one stops it with what it has."""

    text: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """End the running turn."""


@dataclass(frozen=True, slots=True)
class ListFiles:
    """List the files of the conversation's last turns."""


@dataclass(frozen=True, slots=True)
class Quit:
    """Leave the prompt."""


@dataclass(frozen=True, slots=True)
class Help:
    """Print what can be typed."""


Typed = Say | Steer | Cancel | Answer | ListFiles | Quit | Help


def parse_line(line: str | None, *, awaits_answer: bool = False) -> Typed | None:
    """Parse a typed line; None for a blank one. The end of input quits. `awaits_answer`: an approval is pending."""
    if line is None:
        return Quit()
    text = line.strip()
    if not text:
        return None
    if not text.startswith("/"):
        return (try_parse_answer(text) if awaits_answer else None) or Say(text)
    name, _, rest = text.partition(" ")
    match name:
        case "/steer":
            return Steer(rest.strip())
        case "/cancel":
            return Cancel()
        case "/approve":
            return Answer("approve")
        case "/deny":
            return Answer("deny", rest.strip())
        case "/files":
            return ListFiles()
        case "/quit" | "/exit":
            return Quit()
        case _:
            return Help()


class Prompt:
    """Interacts with a person until they leave."""

    def __init__(self, client: EverturnClient, chat: Chat, screen: Screen, lines: LineReader, command: str) -> None:
        self._client = client
        self._chat = chat
        self._screen = screen
        self._lines = lines
        self._command = command
        self._next_turn: str | None = None
        self._starters: tuple[str, ...] = ()

    async def run(self) -> None:
        """Read and process lines until /quit or the end of input."""
        self._screen.say(HELP)
        running = await self._find_running()
        if running and not await self._run_turns(running):
            return
        reading = asyncio.ensure_future(self._lines.next())
        if self._chat.conversation_id == NEW:
            await self._show_starters(until=reading)
        incomplete = ""
        while True:
            self._screen.write([Piece("info", f"> {one_line(incomplete)}{' ' if incomplete else ''}")])
            typed = parse_line(await reading)
            match typed:
                case None:
                    incomplete = ""
                case Quit():
                    return
                case Say(text=text):
                    starter = None if incomplete else self._find_starter(text)
                    if starter and is_incomplete(starter):
                        incomplete = f"{starter} "
                    elif await self._run_message(incomplete + (starter or text)):
                        incomplete = ""
                    else:
                        return
                case ListFiles():
                    await self._list_files()
                case Help():
                    self._screen.say(HELP)
                case Steer() | Cancel() | Answer():
                    self._screen.say("Nothing is running.")
                case _:
                    assert_never(typed)
            reading = asyncio.ensure_future(self._lines.next())

    async def _show_starters(self, *, until: asyncio.Future[str | None]) -> None:
        """Show what the agent proposes to begin with, unless the person types something first."""
        listing = asyncio.ensure_future(self._client.list_agents())
        await asyncio.wait({listing, until}, return_when=asyncio.FIRST_COMPLETED)
        if not listing.done():
            listing.cancel()
            await asyncio.gather(listing, return_exceptions=True)
            return
        try:
            agent = try_find_agent(listing.result(), self._chat.agent)
        except EverturnError as error:
            self._screen.say(str(error), "bad")
            return
        if agent and agent.starters:
            self._starters = agent.starters
            self._screen.say(render_starters(agent.starters))

    def _find_starter(self, text: str) -> str | None:
        """The proposal with this number, which a new conversation can begin with."""
        if self._chat.conversation_id != NEW or text not in map(str, range(1, len(self._starters) + 1)):
            return None
        starter = self._starters[int(text) - 1]
        if not is_incomplete(starter):
            self._screen.say(f"> {one_line(starter)}")
        return starter

    async def _run_message(self, text: str) -> bool:
        """Send a message and run its turn, and the turns of its followups. False when the person left."""
        try:
            accepted = await self._chat.send(text)
        except EverturnError as error:
            self._screen.say(str(error), "bad")
            return True
        return await self._run_turns(accepted.turn_id)

    async def _run_turns(self, turn_id: str) -> bool:
        """Run a turn and the turns of its followups. False when the person left."""
        next_id: str | None = turn_id
        while next_id:
            self._next_turn = None
            turn = await self._run_turn(next_id)
            if turn is None:
                self._chat.say("The agent continues without you. Come back with --continue.")
                return False
            next_id = self._next_turn or await self._find_promoted(turn)
        return True

    async def _find_running(self) -> str | None:
        """The turn that runs or waits in a continued conversation."""
        if self._chat.conversation_id == NEW:
            return None
        state = await self._client.fetch(self._chat.conversation_id)
        last = state.turns[-1] if state.turns else None
        return last.turn_id if last and is_open(last) else None

    async def _run_turn(self, turn_id: str) -> TurnView | None:
        """Print the turn and process input meanwhile. None when the person left."""
        following = asyncio.ensure_future(self._chat.follow(turn_id))
        reading = asyncio.ensure_future(self._lines.next())
        try:
            while True:
                await asyncio.wait({following, reading}, return_when=asyncio.FIRST_COMPLETED)
                # A line that arrived together with the turn's end must not get lost.
                if reading.done():
                    typed = parse_line(reading.result(), awaits_answer=self._chat.pending_approval is not None)
                    if isinstance(typed, Quit):
                        return following.result() if following.done() else None
                    if typed:
                        await self._say_to_turn(typed)
                    reading = asyncio.ensure_future(self._lines.next())
                if following.done():
                    return following.result()
        finally:
            following.cancel()
            reading.cancel()
            await asyncio.gather(following, reading, return_exceptions=True)

    async def _say_to_turn(self, typed: Say | Steer | Cancel | Answer | ListFiles | Help) -> None:
        try:
            match typed:
                case Say(text=text):
                    accepted = await self._chat.send(text)
                    # The turn ended before this arrived, so it is a turn of its own.
                    if accepted.signal_id is None:
                        self._next_turn = accepted.turn_id
                    elif self._chat.pending_approval:
                        self._chat.say("Your message was sent. The tool call still needs a y or n.")
                case Steer(text=text):
                    await self._client.send_signal(self._chat.conversation_id, "steer", text)
                case Cancel():
                    await self._chat.cancel()
                case Answer():
                    await self._chat.answer(typed)
                case ListFiles():
                    await self._list_files()
                case Help():
                    self._chat.say(HELP)
                case _:
                    assert_never(typed)
        except EverturnError as error:
            self._chat.say(str(error))

    async def _find_promoted(self, turn: TurnView) -> str | None:
        """The new turn of a followup that arrived too late for this one."""
        if not any(_may_be_promoted(signal) for signal in turn.signals):
            return None
        state = await self._client.fetch(self._chat.conversation_id, turn_ids=[turn.turn_id])
        promoted = [signal.promoted_to for each in state.turns for signal in each.signals if signal.promoted_to]
        return promoted[-1] if promoted else None

    async def _list_files(self) -> None:
        if self._chat.conversation_id == NEW:
            self._chat.say("There are no files.")
            return
        state = await self._client.fetch(self._chat.conversation_id)
        files = [file for turn in state.turns for file in (*turn.attachments, *turn.files)]
        for file in files:
            self._chat.say(render_file(file, f"{self._command} download"))
        if not files:
            self._chat.say("There are no files.")


def _may_be_promoted(signal: SignalView) -> bool:
    return signal.kind == "followup" and signal.state in ("accepted", "promoted")
