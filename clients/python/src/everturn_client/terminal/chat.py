"""One turn in a terminal: send, follow, print, download, and cancel on Ctrl-C."""

import asyncio
import re
import termios
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from everturn.core.errors import EverturnError
from everturn.events.fold import is_open
from everturn.events.model import ChatCompaction, ChatPhase, ConvStatus, Envelope, encode_envelope
from everturn.events.views import ApprovalView, TurnView
from everturn_client.answers import Accepted
from everturn_client.client import EverturnClient
from everturn_client.errors import ProblemError
from everturn_client.terminal.interrupts import Interrupts
from everturn_client.terminal.last_conversation import LastConversations
from everturn_client.terminal.lines import LineReader
from everturn_client.terminal.screen import Screen
from everturn_client.terminal.turn_printer import TurnPrinter
from everturn_client.terminal.wording import render_answer_commands, render_call, render_position

NEW = "new"
_ANSWER = re.compile(r"(?:(?P<yes>y|yes)|(?:n|no)(?:[\s,:]+(?P<reason>.*))?)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer to the question whether a tool can be called."""

    kind: Literal["approve", "deny"]
    reason: str = ""


def try_parse_answer(text: str) -> Answer | None:
    """`y`, `yes`, `n`, `no`, and a reason after the latter two; None for anything else."""
    found = _ANSWER.fullmatch(text.strip())
    if found is None:
        return None
    return Answer("approve") if found["yes"] else Answer("deny", (found["reason"] or "").strip())


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """How turns are shown. `command` calls this program with the options that name server and user.

    With `answers_here` a person reads questions here and can answer them; otherwise the commands for answering are
    printed. `agent` answers a new conversation; an existing one keeps its agent.
    """

    agent: str | None = None
    show_thinking: bool = True
    as_json: bool = False
    download_dir: Path | None = None
    command: str = "everturn"
    answers_here: bool = False
    time_zone: str | None = None


class Chat:
    """Turns of one conversation, which is `new` until the first message was accepted.

    `pending_approval` is the oldest unanswered one of the followed turn.
    """

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
        self._printed_position = ""
        self.conversation_id = conversation_id
        self.pending_approval: ApprovalView | None = None
        self._asked_changed = asyncio.Event()
        self._keyboard: int | None = None

    async def run_once(self, text: str, files: Sequence[Path], keyboard: int | None = None) -> TurnView:
        """Send one message and follow its turn to the end; finally prints how to continue.

        Questions are answered at the terminal `keyboard`, which is read only while one waits.
        """
        accepted = await self.send(text, files)
        self._keyboard = keyboard
        answering = None if keyboard is None else asyncio.ensure_future(self._answer_at(keyboard))
        if answering is not None:
            answering.add_done_callback(self._report_failure)
        try:
            turn = await self.follow(accepted.turn_id)
        finally:
            if answering is not None:
                answering.cancel()
                await asyncio.gather(answering, return_exceptions=True)
        if not self._options.as_json:
            again = f'{self._options.command} chat --conversation {self.conversation_id} "…"'
            self._screen.say(f"Conversation {self.conversation_id}. Continue with: {again}")
        return turn

    async def _send(self, text: str, files: Sequence[Path]) -> Accepted:
        zone, to = self._options.time_zone, self.conversation_id
        bundle = self._options.agent if to == NEW else None
        try:
            return await self._client.send_message(to, text, files=files, bundle_id=bundle, time_zone=zone)
        except ProblemError as error:
            # A zone that only one of the two machines knows must not block a message, nor must an older server.
            if zone is None or not any(field.startswith("body.time_zone") for field in error.fields):
                raise
        return await self._client.send_message(to, text, files=files, bundle_id=bundle)

    async def send(self, text: str, files: Sequence[Path] = ()) -> Accepted:
        """Send a message and remember the conversation. Prints its queue position, if it has to wait."""
        accepted = await self._send(text, files)
        self.conversation_id = accepted.conversation_id
        await asyncio.to_thread(self._memory.save, self.conversation_id)
        for notice in accepted.receipt.file_notices:
            self._screen.say(notice)
        # The next one in line usually begins at once.
        if accepted.receipt.position:
            self._say_position(accepted.receipt.position, more=bool(accepted.receipt.position_more))
        return accepted

    async def follow(self, turn_id: str) -> TurnView:
        """Print the turn until it ends, then download its files if requested. Ctrl-C cancels the turn."""
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
        """Cancel the running turn."""
        try:
            await self._client.send_signal(self.conversation_id, "cancel")
        except ProblemError as error:
            # It may have ended at this moment.
            if error.problem.status != 409:
                raise

    async def answer(self, answer: Answer) -> None:
        """Answer the waiting question. Its outcome is printed when the server announces it."""
        if self.pending_approval is None:
            self.say("No tool call is waiting for approval.")
            return
        try:
            await self._client.answer_approval(
                self.conversation_id, self.pending_approval.approval_id, answer.kind, reason=answer.reason
            )
        except EverturnError as error:
            self.say(str(error))

    def say(self, text: str) -> None:
        """Print a line within the output of the turn."""
        if self._printer:
            self._screen.write(self._printer.end_line())
        self._screen.say(text)

    async def _print_turn(self, turn_id: str) -> TurnView:
        self._printer = TurnPrinter(
            show_thinking=self._options.show_thinking,
            download_command=f"{self._options.command} download",
            answer_command="" if self._options.answers_here else self._answer_command,
            holds_answer=not self._screen.is_terminal,
        )
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
        self._ask(turn)

    def _ask(self, turn: TurnView) -> None:
        """Ask the oldest waiting question, once."""
        waiting = [approval for approval in turn.approvals if approval.state == "pending"] if is_open(turn) else []
        asked = waiting[0] if waiting else None
        if (asked and asked.approval_id) == (self.pending_approval and self.pending_approval.approval_id):
            return
        self.pending_approval = asked
        self._asked_changed.set()
        if asked and self._options.answers_here:
            if self._keyboard is not None:
                # Input typed before the question is printed does not answer it; later input does.
                termios.tcflush(self._keyboard, termios.TCIFLUSH)
            is_alone = all(each is asked or each.round != asked.round for each in turn.approvals)
            which = "" if is_alone else f"Allow {render_call(asked)}? "
            if asked.connect_url:
                self.say("The answer continues once the account is connected. Type n to do without it.")
            else:
                self.say(f"{which}Type y to allow it, or n with an optional reason to deny it.")

    async def _answer_at(self, keyboard: int) -> None:
        """Read answers from a terminal while a question waits. At the end of input, print the commands that answer it
        instead."""
        while True:
            await self._asked_changed.wait()
            self._asked_changed.clear()
            if self.pending_approval is None:
                continue
            with LineReader(keyboard) as lines:
                if not await self._take_answers(lines) and self.pending_approval:
                    commands = render_answer_commands(self.pending_approval, self._answer_command)
                    self.say(f"The tool call still needs approval.\n{commands}")
                    return

    def _report_failure(self, answering: asyncio.Future[None]) -> None:
        error = None if answering.cancelled() else answering.exception()
        if error:
            self.say(f"Can't read your input any more: {error!r}")
            if self.pending_approval:
                self.say(render_answer_commands(self.pending_approval, self._answer_command))

    async def _take_answers(self, lines: LineReader) -> bool:
        """Read answers until the question changes or is settled. False at the end of input."""
        while not self._asked_changed.is_set():
            reading, changing = asyncio.ensure_future(lines.next()), asyncio.ensure_future(self._asked_changed.wait())
            try:
                await asyncio.wait({reading, changing}, return_when=asyncio.FIRST_COMPLETED)
                if changing.done():
                    return True
                line = reading.result()
            finally:
                for task in (reading, changing):
                    task.cancel()
                await asyncio.gather(reading, changing, return_exceptions=True)
            if line is None:
                return False
            answer = try_parse_answer(line)
            if answer:
                await self.answer(answer)
            elif line.strip():
                self.say("Type y to allow it, or n with an optional reason to deny it.")
        return True

    @property
    def agent(self) -> str | None:
        """The agent that was chosen for a new conversation."""
        return self._options.agent

    @property
    def _answer_command(self) -> str:
        return f"{self._options.command} answer --conversation {self.conversation_id}"

    def _print_status(self, turn: TurnView, status: ConvStatus) -> None:
        """Print the turn's position whenever it changes, and again when the turn waits again."""
        if status.state != "queued":
            self._printed_position = ""
        elif status.turn_id == turn.turn_id and status.position is not None:
            self._say_position(status.position, more=bool(status.position_more))

    def _say_position(self, ahead: int, *, more: bool) -> None:
        text = render_position(ahead, more=more)
        if text != self._printed_position and not self._options.as_json:
            self.say(text)
        self._printed_position = text

    async def _cancel_at(self, interrupt: asyncio.Event) -> None:
        await interrupt.wait()
        self.say("Cancelling. Press Ctrl-C again to exit immediately.")
        try:
            await self.cancel()
        except EverturnError as error:
            self.say(f"The turn could not be cancelled. {error}")

    async def _download(self, turn: TurnView, folder: Path) -> None:
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        for file in turn.files:
            saved = await self._client.download(file.artifact_id, folder)
            self._screen.say(f"Saved {saved}")
