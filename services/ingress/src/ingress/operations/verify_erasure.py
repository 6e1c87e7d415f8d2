"""`python -m ingress verify-erasure CONVERSATION`: looks for anything that an erasure left."""

import argparse
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from everturn.model.ids import ConversationId, is_id
from everturn.ports.life.remains import Remains
from ingress.operations.commands import Command
from ingress.settings import IngressSettings

FindRemains = Callable[[IngressSettings, ConversationId], AbstractAsyncContextManager[Remains]]


def build_verify_erasure(find: FindRemains) -> Command:
    """The command; `find` opens the stores, looks, and closes them."""

    async def run(settings: IngressSettings, arguments: argparse.Namespace) -> int:
        if not is_id(arguments.conversation, "conv"):
            sys.stderr.write(f"verify-erasure: {arguments.conversation!r} is not a conversation id\n")
            return 2
        async with find(settings, ConversationId(arguments.conversation)) as remains:
            sys.stdout.write(render_remains(arguments.conversation, remains))
        return 0 if remains.is_clean else 1

    return Command("Look for rows, events and objects of an erased conversation.", run, _add_arguments)


def render_remains(conversation_id: str, remains: Remains) -> str:
    """What an operator reads."""
    lines = [f"{table}: {count} rows" for table, count in remains.rows.items()]
    lines += ["events"] if remains.events else []
    lines += [f"object {key}" for key in remains.objects]
    head = f"CLEAN nothing is left of {conversation_id}" if remains.is_clean else f"LEFT of {conversation_id}:"
    shared = f"{len(remains.shared)} objects stay for its forks\n" if remains.shared else ""
    return "\n".join([head, *lines]) + f"\n{shared}"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("conversation", help="the id of the erased conversation")
