"""A supervisor in its own container: it waits for its executor and then reports that it is ready for a run."""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Final

from everturn.execution.messages import LINE_SOCKET
from exec_supervisor.pair.sandbox import open_sandbox
from exec_supervisor.supervisor.run import run_supervisor
from exec_supervisor.supervisor.standard_streams import LIFELINE, run_on_standard_streams
from exec_supervisor.supervisor.worker_line import WorkerLine

EXECUTOR_UID: Final = 1001
"""The user if the broker names none, and always the group that can use the pair's sockets."""


def main() -> int:
    """Return the exit code: 1 when it was terminated before the result was sent."""
    parser = argparse.ArgumentParser(prog="exec_supervisor pair", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(LINE_SOCKET).parent, help="where the pair's sockets are")
    parser.add_argument("--executor-uid", type=int, default=EXECUTOR_UID, help="user of this pair's executor")
    chosen = parser.parse_args(sys.argv[2:])
    return run_on_standard_streams(partial(_serve, chosen.folder, chosen.executor_uid))


async def _serve(folder: Path, executor_uid: int, line: WorkerLine) -> int:
    return await run_supervisor(line, LIFELINE, partial(open_sandbox, folder, executor_uid, EXECUTOR_UID))
