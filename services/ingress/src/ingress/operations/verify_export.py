"""`python -m ingress verify-export FILE`: checks an exported conversation, without any server."""

import argparse
import sys
from pathlib import Path

from everturn.lifecycle.export_check import ExportBroken, check_export

HELP = "Check an exported conversation: its lines and the hash chain of its blocks."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="the file that GET .../export returned")


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
        f"WHOLE {report.conversation_id}: {end.blocks} blocks, {end.artifacts} artifacts, {end.signals} signals, "
        f"{end.feedback} feedback; the last hash is {end.last_hash}\n"
    )
    return 0
