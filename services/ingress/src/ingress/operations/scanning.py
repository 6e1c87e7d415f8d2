"""The commands that look after stored files: `rescan` with newer signatures, `revoke` by an operator's own judgement.

They need DATABASE_OWNER_URL, the migrating role: the role of the serving process can't take files away.
"""

import argparse
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from everturn.model.ids import ArtifactId
from ingress.attachments.rescan import Rescan
from ingress.operations.commands import Command
from ingress.settings import IngressSettings

Open = Callable[[IngressSettings], AbstractAsyncContextManager[Rescan]]


def build_rescan_command(open_rescan: Open) -> Command:
    """`rescan [--all]`."""

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
        "--all", action="store_true", help="Also scan files that were scanned with the current signatures."
    )


def _add_revoke_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("artifact", help="The id of the file, art_...")
    parser.add_argument("--reason", default="by an operator", help="The reason; stored in the file's verdict.")
