"""The terminal client `everturn`: parses the command line, runs one command, and turns errors into exit codes."""

import argparse
import asyncio
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import NoReturn, TextIO, cast

import httpx2

from everturn.bundles.registry import DEFAULT_BUNDLE
from everturn.core.errors import EverturnError
from everturn.events.fold import is_open
from everturn.events.views import TurnView
from everturn_client.answers import try_find_agent
from everturn_client.arguments import build_command_prefix, build_parser, check_encoding, parse_arguments
from everturn_client.backoff import Timings
from everturn_client.canary import Canary
from everturn_client.client import Event, EverturnClient
from everturn_client.errors import BadInput, ProblemError, TooMuch, Unreachable, check_utf8
from everturn_client.settings import ClientSettings, load_settings
from everturn_client.terminal.canary import run_canary
from everturn_client.terminal.chat import NEW, Chat, ChatOptions
from everturn_client.terminal.commands import (
    run_agents,
    run_answer,
    run_archive,
    run_connections,
    run_delete,
    run_download,
    run_export,
    run_feedback,
    run_fork,
    run_list,
    run_rename,
    run_search,
    run_show,
    run_signal,
)
from everturn_client.terminal.doctor import run_doctor
from everturn_client.terminal.last_conversation import LastConversations
from everturn_client.terminal.lines import LineReader
from everturn_client.terminal.prompt import Prompt
from everturn_client.terminal.screen import OutputClosed, Piece, Screen
from everturn_client.terminal.wording import one_line

DONE, FAILED, USAGE, UNREACHABLE, CUT, INTERRUPTED, OUTPUT_CLOSED = 0, 1, 2, 3, 4, 130, 141
"""The last two are the codes that a shell reports for a program ended by SIGINT or SIGPIPE."""
MAX_STDIN_CHARS = 1_000_000
START_SERVER = (
    "If no server runs there, start one with `make run`, or with `everturn bundle run` if you write an agent. If it "
    "runs elsewhere, pass --url or set EVERTURN_URL."
)


PLATFORM = "everturn_local"
"""The package that starts a platform on this machine."""
PLATFORM_COMMANDS = {
    "models": "docs/models.md",
    "bundle": "docs/build-an-agent.md",
    "verify-receipt": "docs/how-to/prove-what-ran.md",
}
"""Its commands, with the page about each."""


class BadUsage(EverturnError):
    """The command can't run with these options."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    if sys.stdin is None:  # the caller has closed it
        sys.stdin = TextIOWrapper(BytesIO())
    # As in arguments: each user of a text checks it; otherwise reading could fail in the middle.
    cast("TextIOWrapper", sys.stdin).reconfigure(errors="surrogateescape")
    try:
        settings = load_settings()
    except BadInput as error:
        Screen(sys.stdout, sys.stderr, colour=False).say(str(error), "bad")
        return USAGE
    parser = build_parser(settings)
    arguments = parse_arguments(parser, argv)
    if arguments.command is None and sys.stdin.isatty() and sys.stdout.isatty():
        arguments = parse_arguments(parser, [*(sys.argv[1:] if argv is None else argv), "chat"])
    screen = Screen(sys.stdout, sys.stderr, colour=settings.colour)
    try:
        return _run_command(parser, arguments, settings, screen)
    finally:
        with suppress(OutputClosed):
            screen.end_answer()


def _run_platform(command: str, words: Sequence[str]) -> NoReturn:
    """Become a command of the platform, with its exit status and its signals. It needs the keys and the configuration
    of a worker, which no server hands out."""
    if find_spec(PLATFORM) is None:
        raise BadUsage(
            "This command needs the Everturn platform, which is not installed here. Run it where a worker runs: see "
            f"{PLATFORM_COMMANDS[command]}."
        )
    os.execv(sys.executable, [sys.executable, "-m", PLATFORM, command, *words])  # noqa: S606 - our own program


def _run_command(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, settings: ClientSettings, screen: Screen
) -> int:
    try:
        if arguments.command is None:
            screen.write([Piece("output", parser.format_help())])
            return DONE
        if arguments.command in PLATFORM_COMMANDS:
            _run_platform(arguments.command, arguments.words)
        return asyncio.run(_run(arguments, settings, screen))
    except OutputClosed:
        _discard_output()
        return OUTPUT_CLOSED
    except Unreachable as error:
        screen.say(f"{error}\n{START_SERVER}", "bad")
        return UNREACHABLE
    except (BadInput, BadUsage, TooMuch, OSError, httpx2.InvalidURL) as error:
        screen.say(_describe(error), "bad")
        return USAGE
    except EverturnError as error:
        screen.say(str(error), "bad")
        return FAILED
    except (KeyboardInterrupt, asyncio.CancelledError):
        return INTERRUPTED


async def _run(arguments: argparse.Namespace, settings: ClientSettings, screen: Screen) -> int:
    check_encoding(arguments)
    place = f"{arguments.url} {arguments.tenant} {arguments.project} {arguments.user or ''}"
    memory = LastConversations(settings.state_dir, place)
    command = build_command_prefix(_load_program(), arguments)

    def report_unreachable(error: Unreachable) -> None:
        screen.say(f"{error}\nTrying again for up to {arguments.wait:g} s; press Ctrl-C to stop. {START_SERVER}")

    async with EverturnClient(
        arguments.url,
        arguments.tenant,
        arguments.project,
        token=arguments.token,
        dev_user=arguments.user,
        timings=Timings(reconnect_s=arguments.wait),
        report_unreachable=report_unreachable,
    ) as client:
        match arguments.command:
            case "chat":
                return await _run_chat(client, screen, memory, arguments, command=command, time_zone=settings.time_zone)
            case "signal":
                conversation = arguments.conversation or _load_last(memory)
                event = Event(arguments.event_kind, arguments.payload, not arguments.record_only, arguments.credit)
                await run_signal(
                    client,
                    screen,
                    conversation,
                    arguments.text,
                    what=event if arguments.kind == "event" else arguments.kind,
                    files=arguments.files,
                    target_turn_id=arguments.turn,
                )
            case "answer":
                conversation = arguments.conversation or _load_last(memory)
                await run_answer(
                    client, screen, conversation, arguments.approval, kind=arguments.kind, reason=arguments.reason
                )
            case "agents":
                await run_agents(client, screen, as_json=arguments.as_json)
            case "connections":
                await run_connections(client, screen, delete=arguments.place)
            case "list":
                await run_list(
                    client, screen, limit=arguments.limit, title=arguments.title, archived=arguments.archived
                )
            case "search":
                await run_search(
                    client, screen, arguments.query, limit=arguments.limit, conversation_id=arguments.conversation
                )
            case "rename":
                await run_rename(client, screen, arguments.conversation, arguments.title)
            case "archive" | "unarchive":
                is_archived = arguments.command == "archive"
                await run_archive(client, screen, arguments.conversations, archived=is_archived)
            case "delete":
                if not arguments.yes and not sys.stdin.isatty():
                    raise BadUsage("Standard input is not a terminal. Pass --yes to delete without confirmation.")
                answers = None if arguments.yes else sys.stdin
                return DONE if await run_delete(client, screen, arguments.conversations, answers=answers) else FAILED
            case "fork":
                await run_fork(client, screen, arguments.conversation, turn_id=arguments.turn, title=arguments.title)
            case "export":
                await run_export(client, screen, arguments.conversation, arguments.output)
            case "show":
                await run_show(
                    client,
                    screen,
                    arguments.conversation,
                    all_turns=arguments.all_turns,
                    as_json=arguments.as_json,
                    command=command,
                )
            case "doctor":
                return FAILED if await run_doctor(client, screen) else DONE
            case "canary":
                canary = Canary(client, arguments.agent, arguments.text, limit_s=arguments.limit)
                has_answered = await run_canary(
                    canary, screen, every_s=arguments.every, once=arguments.once, address=arguments.listen
                )
                return DONE if has_answered else FAILED
            case "download":
                await run_download(client, screen, arguments.artifact, arguments.output)
            case _:
                conversation = arguments.conversation or _load_last(memory)
                await run_feedback(
                    client, screen, conversation, arguments.turn, reaction=arguments.reaction, text=arguments.text
                )
    return DONE


async def _run_chat(
    client: EverturnClient,
    screen: Screen,
    memory: LastConversations,
    arguments: argparse.Namespace,
    *,
    command: str,
    time_zone: str | None,
) -> int:
    is_prompt = arguments.text is None and sys.stdin.isatty()
    keyboard = None if is_prompt or arguments.as_json else _try_find_keyboard()
    options = ChatOptions(
        agent=arguments.agent,
        show_thinking=not arguments.no_thinking,
        as_json=arguments.as_json,
        download_dir=arguments.download,
        command=command,
        answers_here=is_prompt or keyboard is not None,
        time_zone=time_zone,
    )
    conversation = arguments.conversation or (await _check_last(client, memory) if arguments.go_on else NEW)
    if arguments.agent:
        await _check_agent(client, arguments.agent, conversation)
    chat = Chat(client, screen, options, conversation_id=conversation, memory=memory)
    if is_prompt:
        if arguments.as_json or arguments.files:
            raise BadUsage("--json and --file need a message on the command line.")
        with LineReader(sys.stdin.fileno()) as lines:
            await Prompt(client, chat, screen, lines, command).run()
        return DONE
    text = await asyncio.to_thread(_read_text, sys.stdin) if arguments.text is None else arguments.text
    return _exit_code(await chat.run_once(text, arguments.files, keyboard))


def _try_find_keyboard() -> int | None:
    """The terminal for questions and answers, or None. A program in the background would be stopped when it reads."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    descriptor = sys.stdin.fileno()
    try:
        return descriptor if os.tcgetpgrp(descriptor) == os.getpgrp() else None
    except OSError:
        # Not the controlling terminal, so reading from it does not stop the program.
        return descriptor


def _discard_output() -> None:
    """Discard unwritten output; otherwise the interpreter would print an error at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)


def _read_text(stdin: TextIO) -> str:
    text = stdin.read(MAX_STDIN_CHARS + 1)
    if len(text) > MAX_STDIN_CHARS:
        raise TooMuch(f"Standard input is longer than {MAX_STDIN_CHARS:,} characters. Attach it as a file with --file.")
    check_utf8(text, "Standard input", "Convert it to UTF-8, or attach it as a file with --file.")
    return text


def _load_last(memory: LastConversations) -> str:
    last = memory.try_load()
    if last is None:
        raise BadUsage("There is no previous conversation for this server and user. Choose one with --conversation.")
    return last


async def _check_last(client: EverturnClient, memory: LastConversations) -> str:
    """The remembered conversation. Raises BadUsage if it has been deleted since."""
    last = _load_last(memory)
    try:
        await client.get_conversation(last)
    except ProblemError as error:
        if error.problem.status != 404:
            raise
        raise BadUsage(
            f"Your last conversation, {last}, was deleted. Leave out --continue to start a new one, or choose "
            "another with --conversation; `everturn list` lists them."
        ) from error
    return last


async def _check_agent(client: EverturnClient, bundle_id: str, conversation_id: str) -> None:
    """Raises BadUsage if there is no such agent for this person, or if the conversation has another one."""
    agents = [agent for agent in await client.list_agents() if agent.is_ready]
    agent = try_find_agent(agents, bundle_id)
    if agent is None:
        ids = ", ".join(agent.id for agent in agents) or "none"
        raise BadUsage(f"There is no agent {one_line(bundle_id)} that you can use. Those that you can use: {ids}.")
    if conversation_id == NEW:
        return
    own = (await client.get_conversation(conversation_id)).bundle_id
    if try_find_agent(agents, own) != agent:
        raise BadUsage(
            f"The conversation {conversation_id} has the agent {own or DEFAULT_BUNDLE} and keeps it. Leave out --agent "
            "to continue it, or leave out the conversation to start one with another agent."
        )


def _describe(error: Exception) -> str:
    """The error message; for a file, without Python's errno prefix."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}."
    return str(error)


def _load_program() -> str:
    """The command of this program: its name if the shell finds it, otherwise its path."""
    called = sys.argv[0]
    return called if Path(called).name == "everturn" and not shutil.which("everturn") else "everturn"


def _exit_code(turn: TurnView) -> int:
    """The exit code of a turn: scripts must not treat a partial answer as complete, whichever limit cut it off."""
    if is_open(turn) or turn.error is not None or turn.outcome == "cancelled":
        return FAILED
    return CUT if turn.outcome in ("cut", "capped") or turn.cut_reason is not None else DONE


if __name__ == "__main__":
    sys.exit(main())
