"""`python -m chat_proc` runs one worker until SIGTERM."""

import asyncio
import os
import sys

from pydantic import ValidationError

from chat_proc.bootstrap import open_worker
from chat_proc.settings import WorkerSettings
from everturn.errors import EverturnError
from everturn.telemetry.logging import configure_logging


async def run(settings: WorkerSettings) -> None:
    """Until drained."""

    def tell_ready() -> None:
        if settings.ready_fd is not None:
            os.write(settings.ready_fd, readiness.line().encode() + b"\n")
            os.close(settings.ready_fd)

    async with open_worker(settings) as (worker, readiness):
        await worker.run(tell_ready)


def main() -> int:
    """Exit status 2 says that a setting is wrong."""
    try:
        settings = WorkerSettings()  # pyright: ignore[reportCallIssue] the environment gives the arguments
        configure_logging(settings.log_level, settings.log_format)
        asyncio.run(run(settings))
    except (ValidationError, EverturnError) as error:
        sys.stderr.write(f"chat-proc can't start: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
