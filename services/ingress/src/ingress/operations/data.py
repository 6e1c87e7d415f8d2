"""Operator commands for data: orphaned objects, rescans, usage, the remains of an erasure, and exports."""

import argparse
import asyncio
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import astuple, fields
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import orjson

from everturn.accounts.usage import LoadUsage, UsageTotal
from everturn.core.errors import EverturnError
from everturn.core.ids import ArtifactId, ConversationId, is_id
from everturn.lifecycle.erasure import Remains
from everturn.lifecycle.export_check import ExportBroken, check_export
from everturn.lifecycle.orphans import SweepParts
from ingress.attachments.rescan import Rescan
from ingress.files.sweeping import run_sweep
from ingress.operations.commands import Command, OfflineCommand
from ingress.settings import IngressSettings

HELP = "List stored objects older than an hour that no row names, as JSON lines; --delete removes them."

OpenParts = Callable[[IngressSettings], AbstractAsyncContextManager[SweepParts]]

Open = Callable[[IngressSettings], AbstractAsyncContextManager[Rescan]]

MAX_ROWS = 100_000
DAYS = 30

FindRemains = Callable[[IngressSettings, ConversationId], AbstractAsyncContextManager[Remains]]


def build_sweep_command(open_parts: OpenParts) -> Command:
    """Build the command with its drivers."""

    async def run(settings: IngressSettings, arguments: argparse.Namespace) -> int:
        async with open_parts(settings) as parts:
            swept = await run_sweep(parts, prefix=arguments.prefix, delete=arguments.delete, report=write_line)
        write_line(
            {
                "seen": swept.seen,
                "orphans": swept.orphans,
                "orphan_bytes": swept.orphan_bytes,
                "deleted": swept.deleted,
            }
        )
        return 0

    return Command(HELP, run, add_arguments)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--delete", action="store_true", help="delete the objects that no row names")
    parser.add_argument(
        "--prefix", default="", help="only keys with this prefix, such as a conversation's id and a slash"
    )


def write_line(line: dict[str, object]) -> None:
    """Write one line of JSON."""
    sys.stdout.write(orjson.dumps(line).decode() + "\n")
    sys.stdout.flush()


def build_rescan_command(open_rescan: Open) -> Command:
    """`rescan [--all]`. It needs DATABASE_OWNER_URL, the migrating role: the role of the serving process can't revoke
    files."""

    async def run(settings: IngressSettings, arguments: argparse.Namespace) -> int:
        async with open_rescan(settings) as rescan:
            tally = await rescan.run(everything=arguments.all)
        sys.stdout.write(
            f"clean {tally.clean}, revoked {tally.revoked}, unscannable {tally.unscannable}, missing {tally.missing}\n"
        )
        return 0

    return Command("Scan stored files again and revoke those that are infected.", run, _add_rescan_arguments)


def build_revoke_command(open_rescan: Open) -> Command:
    """`revoke ARTIFACT [--reason TEXT]`."""

    async def run(settings: IngressSettings, arguments: argparse.Namespace) -> int:
        async with open_rescan(settings) as rescan:
            count = await rescan.revoke(ArtifactId(arguments.artifact), arguments.reason)
        sys.stdout.write(f"{count} files are revoked.\n")
        return 0

    return Command("Revoke a stored file and all others with the same content.", run, _add_revoke_arguments)


def _add_rescan_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--all", action="store_true", help="also scan files that were scanned with the current signatures"
    )


def _add_revoke_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("artifact", help="the id of the file, art_...")
    parser.add_argument("--reason", default="by an operator", help="the reason; stored in the file's verdict")


def build_usage_command(load_usage: LoadUsage) -> OfflineCommand:
    """Build the command. It needs DATABASE_OWNER_URL, the migrating role."""

    async def load(arguments: argparse.Namespace) -> tuple[UsageTotal, ...]:
        end = arguments.end or datetime.now(UTC).date() + timedelta(days=1)
        start = arguments.start or end - timedelta(days=DAYS)
        return await load_usage(arguments.tenant, start, end, MAX_ROWS + 1)

    def run(arguments: argparse.Namespace) -> int:
        try:
            totals = asyncio.run(load(arguments))
        except EverturnError as error:
            sys.stderr.write(f"ingress: {error}\n")
            return 1
        sys.stdout.write("\t".join(field.name for field in fields(UsageTotal)) + "\n")
        for total in totals[:MAX_ROWS]:
            sys.stdout.write("\t".join(map(str, astuple(total))) + "\n")
        if len(totals) > MAX_ROWS:
            sys.stderr.write(f"ingress: There are more than {MAX_ROWS} rows. Request fewer days or a single tenant.\n")
            return 1
        return 0

    return OfflineCommand("Report usage by user, UTC day and model, as tab-separated lines.", run, _add_period)


def _add_period(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tenant", default=None, help="only this tenant")
    parser.add_argument("--from", dest="start", type=date.fromisoformat, help=f"first day (default: {DAYS} days ago)")
    parser.add_argument("--to", dest="end", type=date.fromisoformat, help="day after the last one (default: tomorrow)")


def build_verify_erasure(find: FindRemains) -> Command:
    """Build the command; `find` opens the stores, searches, and closes them."""

    async def run(settings: IngressSettings, arguments: argparse.Namespace) -> int:
        if not is_id(arguments.conversation, "conv"):
            sys.stderr.write(f"verify-erasure: {arguments.conversation!r} is not a conversation id\n")
            return 2
        async with find(settings, ConversationId(arguments.conversation)) as remains:
            sys.stdout.write(render_remains(arguments.conversation, remains))
        return 0 if remains.is_clean else 1

    return Command("Look for rows, events and objects of an erased conversation.", run, _add_conversation)


def render_remains(conversation_id: str, remains: Remains) -> str:
    """Render the report for the operator."""
    lines = [f"{table}: {count} rows" for table, count in remains.rows.items()]
    lines += ["events"] if remains.events else []
    lines += [f"object {key}" for key in remains.objects]
    head = f"CLEAN: nothing is left of {conversation_id}" if remains.is_clean else f"REMAINS of {conversation_id}:"
    shared = f"{len(remains.shared)} objects are kept for its forks\n" if remains.shared else ""
    return "\n".join([head, *lines]) + f"\n{shared}"


def _add_conversation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("conversation", help="the id of the erased conversation")


def verify_export(arguments: argparse.Namespace) -> int:
    """Exit status 0 when the file is complete and valid, 1 when it is not, 2 when it can't be read."""
    try:
        with arguments.file.open("rb") as file:
            report = check_export(file)
    except OSError as error:
        sys.stderr.write(f"verify-export: {error}\n")
        return 2
    except ExportBroken as error:
        sys.stdout.write(f"BROKEN line {error.number}: {error.why}\n")
        return 1
    end = report.end
    sys.stdout.write(
        f"VALID {report.conversation_id}: {end.blocks} blocks, {end.artifacts} artifacts, {end.signals} signals, "
        f"{end.feedback} feedback; the last hash is {end.last_hash}\n"
    )
    return 0


def add_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="the file that GET .../export returned")


VERIFY_EXPORT = OfflineCommand(
    "Check an exported conversation: its lines and the hash chain of its blocks.", verify_export, add_export
)
