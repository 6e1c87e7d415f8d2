"""`python -m ingress usage`: what people used, by day and model. It needs DATABASE_OWNER_URL, the migrating role."""

import argparse
import asyncio
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import astuple, fields
from datetime import UTC, date, datetime, timedelta

from everturn.errors import EverturnError
from everturn.model.usage_totals import UsageTotal
from everturn.ports.usage_report import UsageReport
from ingress.operations.commands import OfflineCommand

MAX_ROWS = 100_000
DAYS = 30


def build_usage_command(open_report: Callable[[], AbstractAsyncContextManager[UsageReport]]) -> OfflineCommand:
    """The command."""

    async def load(arguments: argparse.Namespace) -> tuple[UsageTotal, ...]:
        end = arguments.end or datetime.now(UTC).date() + timedelta(days=1)
        start = arguments.start or end - timedelta(days=DAYS)
        async with open_report() as report:
            return await report.load(tenant=arguments.tenant, start=start, end=end, limit=MAX_ROWS + 1)

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
            sys.stderr.write(f"ingress: There are more than {MAX_ROWS} rows. Ask for fewer days or for one tenant.\n")
            return 1
        return 0

    return OfflineCommand("Report usage by user, UTC day and model, as tab-separated lines.", run, _add_arguments)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tenant", default=None, help="Only this tenant.")
    parser.add_argument("--from", dest="start", type=date.fromisoformat, help=f"First day (default: {DAYS} days ago).")
    parser.add_argument("--to", dest="end", type=date.fromisoformat, help="Day after the last one (default: tomorrow).")
