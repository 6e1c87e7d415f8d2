"""One turn in a terminal: send, follow, print, download, and cancel at Ctrl-C."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from everturn.errors import EverturnError
from everturn.wire.events import ChatCompaction, ChatPhase, ConvStatus, Envelope, encode_envelope
from everturn.wire.views import TurnView
from everturn_client.answers import Accepted
from everturn_client.client import EverturnClient
from everturn_client.errors import ProblemError
from everturn_client.terminal.interrupts import Interrupts
from everturn_client.terminal.last_conversation import LastConversations
from everturn_client.terminal.screen import Screen
from everturn_client.terminal.turn_printer import TurnPrinter
from everturn_client.terminal.wording import render_position

NEW = "new"


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """How turns are shown. `command` is how this program is called, with the options that name server and user."""

    show_thinking: bool = True
    as_json: bool = False
    download_dir: Path | None = None
    command: str = "everturn"


class Chat:
    """Turns of one conversation, which is `new` until the first message was accepted."""

    def __init__(
        self,
        client: EverturnClient,
        screen: Screen,
        options: ChatOptions,
        *,
        conversation_id: str,
        memory: LastConversations,
    ) -> None:
        self._client = client
        self._screen = screen
        self._options = options
        self._memory = memory
        self._printer: TurnPrinter | None = None
        self._told_position = ""
        self.conversation_id = conversation_id

    async def run_once(self, text: str, files: Sequence[Path]) -> TurnView:
        """Send one message and follow its turn to the end; says at last how to go on."""
        accepted = await self.send(text, files)
        turn = await self.follow(accepted.turn_id)
        if not self._options.as_json:
            again = f'{self._options.command} chat --conversation {self.conversation_id} "…"'
            self._screen.say(f"Conversation {self.conversation_id}; go on with: {again}")
        return turn

    async def send(self, text: str, files: Sequence[Path] = ()) -> Accepted:
        """Send a message and remember the conversation. Tells its position, when it has to wait."""
        accepted = await self._client.send_message(self.conversation_id, text, files=files)
        self.conversation_id = accepted.conversation_id
        await asyncio.to_thread(self._memory.save, self.conversation_id)
        for notice in accepted.receipt.file_notices:
            self._screen.say(notice)
        # The next one in line mostly begins at once.
        if accepted.receipt.position:
            self._say_position(accepted.receipt.position, more=bool(accepted.receipt.position_more))
        return accepted

    async def follow(self, turn_id: str) -> TurnView:
        """Print the turn until it ends, then download its files if that is wanted. Ctrl-C cancels the turn."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("A turn is followed inside a task.")
        with Interrupts(task) as interrupts:
            canceller = asyncio.ensure_future(self._cancel_at(interrupts.first))
            try:
                turn = await self._print_turn(turn_id)
            finally:
                canceller.cancel()
                await asyncio.gather(canceller, return_exceptions=True)
        if self._options.download_dir:
            await self._download(turn, self._options.download_dir)
        return turn

    async def cancel(self) -> None:
        """Ask for the end of the running turn."""
        try:
            await self._client.send_signal(self.conversation_id, "cancel")
        except ProblemError as error:
            # It may have ended in this very moment.
            if error.problem.status != 409:
                raise

    def say(self, text: str) -> None:
        """A line between what the turn prints."""
        if self._printer:
            self._screen.write(self._printer.end_line())
        self._screen.say(text)

    async def _print_turn(self, turn_id: str) -> TurnView:
        command = f"{self._options.command} download"
        self._printer = TurnPrinter(show_thinking=self._options.show_thinking, download_command=command)
        last: TurnView | None = None
        async with aclosing(self._client.follow_turn(self.conversation_id, turn_id)) as steps:
            async for step in steps:
                if self._options.as_json:
                    self._screen.write_raw(encode_envelope(step.envelope))
                elif step.turn:
                    self._print_step(self._printer, step.turn, step.envelope)
                last = step.turn
        if last is None:
            raise RuntimeError("A turn was followed to its end without being seen.")
        return last

    def _print_step(self, printer: TurnPrinter, turn: TurnView, envelope: Envelope) -> None:
        if isinstance(envelope.data, ChatCompaction) and envelope.turn_id == turn.turn_id:
            self._screen.write(printer.render_compaction(envelope.data))
        if isinstance(envelope.data, ChatPhase) and envelope.turn_id == turn.turn_id:
            self._screen.write(printer.render_phase(envelope.data))
        if isinstance(envelope.data, ConvStatus):
            self._print_status(turn, envelope.data)
        self._screen.write(printer.render(turn))

    def _print_status(self, turn: TurnView, status: ConvStatus) -> None:
        """The position of the turn as it falls; one that waits anew tells it again."""
        if status.state != "queued":
            self._told_position = ""
        elif status.turn_id == turn.turn_id and status.position is not None:
            self._say_position(status.position, more=bool(status.position_more))

    def _say_position(self, ahead: int, *, more: bool) -> None:
        text = render_position(ahead, more=more)
        if text != self._told_position and not self._options.as_json:
            self.say(text)
        self._told_position = text

    async def _cancel_at(self, interrupt: asyncio.Event) -> None:
        await interrupt.wait()
        self.say("Cancelling; Ctrl-C again leaves at once.")
        try:
            await self.cancel()
        except EverturnError as error:
            self.say(f"It could not be cancelled. {error}")

    async def _download(self, turn: TurnView, folder: Path) -> None:
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        for file in turn.files:
            saved = await self._client.download(file.artifact_id, folder)
            self._screen.say(f"Saved {saved}")
