"""The mode `combined`: supervisor and executor as processes of one container, for engines that can't run pairs.

The container must start it as root with the capabilities SETUID, SETGID and SETPCAP, which it gives up before a program
exists, without a network, and with a seccomp filter. It serves one run. It must be the first process, so that nothing
outlives it.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

from everturn.execution.messages import GATEWAY_SOCKET, Posture
from exec_supervisor.supervisor.child_executor import ChildExecutor, open_sandbox, start_executor
from exec_supervisor.supervisor.run import run_supervisor
from exec_supervisor.supervisor.standard_streams import ENDED_EARLY, LIFELINE, run_on_standard_streams
from exec_supervisor.supervisor.worker_line import WorkerLine


def main() -> int:
    """Return the exit code: 1 when it was terminated before the result was sent, or could not start."""
    parser = argparse.ArgumentParser(prog="exec_supervisor combined", description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=Path(GATEWAY_SOCKET).parent, help="where the gateway's socket is"
    )
    parser.add_argument("--program-uid", type=int, required=True, help="user of the program, which no other run has")
    parser.add_argument("--preload", default="", help="comma-separated modules to import before the run is known")
    chosen = parser.parse_args(sys.argv[2:])
    try:
        executor = start_executor(chosen.program_uid, tuple(filter(None, chosen.preload.split(","))))
    except OSError as error:
        sys.stderr.write(f"the executor can't be started: {error}\n")
        return ENDED_EARLY
    return run_on_standard_streams(partial(_serve, executor, chosen.folder, build_posture(chosen.program_uid)))


async def _serve(executor: ChildExecutor, folder: Path, posture: Posture, line: WorkerLine) -> int:
    return await run_supervisor(line, LIFELINE, partial(open_sandbox, executor, folder, posture))


def build_posture(program_uid: int) -> Posture:
    """Describe how the run is confined."""
    return Posture(
        launcher="containers",
        runtime="",
        outer_uid=program_uid,
        user="a user that only this run has, without capabilities, in one container with its runner and supervisor, "
        "which it sees but can neither signal nor read, with a read-only root",
        network="none (a container without a network device, and only Unix sockets by a filter of the executor)",
        memory="control group of the container engine, without swap, shared with the supervisor, and RLIMIT_AS",
        processes="control group of the container engine, shared with the supervisor",
        disk="tmpfs limited in bytes and inodes",
        seccomp="profile of our own, loaded by the container engine, and a filter of the executor for sockets",
    )
