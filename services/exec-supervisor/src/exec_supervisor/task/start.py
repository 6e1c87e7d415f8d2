"""The mode `task`: a supervisor without a worker, in one container that an engine such as ECS on Fargate has started.

It gets the id of a secret. The secret is an order: where the line is that a worker has recorded, and where the result
goes. The line is played to the supervisor, and what the supervisor sends is stored as it is.

Only this process has the container's credentials. The executor is another user's process with an empty environment and
can open no sockets but Unix ones, so it reaches neither them nor the address that gives them out.
"""

import argparse
import signal
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

from everturn.execution.messages import GATEWAY_SOCKET, Posture
from exec_supervisor.supervisor.child_executor import open_sandbox, start_executor
from exec_supervisor.supervisor.run import OpenSandbox

PROGRAM_UID: Final = 1001
"""The owner of the work folders in the image. A task has a machine of its own, so no other run has this user."""


@dataclass(frozen=True, slots=True)
class TaskStart:
    """The id and the region of the secret with the order, and what opens the sandbox."""

    secret_id: str
    region: str
    open_run: OpenSandbox


def try_start() -> TaskStart | None:
    """Start the executor, which boots while this process imports the rest. None if that can't be done: the reason is on
    stderr."""
    # The first process of a container ignores signals without a handler.
    signal.signal(signal.SIGTERM, _end)
    parser = argparse.ArgumentParser(prog="exec_supervisor task", description=__doc__)
    parser.add_argument("secret", help="id of the secret with the order")
    parser.add_argument("--region", required=True, help="region of the secret")
    chosen = parser.parse_args(sys.argv[2:])
    try:
        executor = start_executor(PROGRAM_UID)
    except OSError as error:
        sys.stderr.write(f"the executor can't be started: {error}\n")
        return None
    opening = partial(open_sandbox, executor, Path(GATEWAY_SOCKET).parent, build_posture(PROGRAM_UID))
    return TaskStart(chosen.secret, chosen.region, opening)


def build_posture(program_uid: int) -> Posture:
    """Describe how the run is confined."""
    return Posture(
        launcher="fargate",
        runtime="",
        outer_uid=program_uid,
        user="a user in a virtual machine that only this run has, in one container with its runner and its supervisor, "
        "which it sees and can neither signal nor read, without capabilities, with a read-only root",
        network="none (only Unix sockets, by a filter of the executor; the supervisor has the network of the task)",
        memory="memory of the task, shared with the supervisor, and RLIMIT_AS",
        processes="RLIMIT_NPROC",
        disk="storage of the task, and files limited by RLIMIT_FSIZE",
        seccomp="profile of the engine, and a filter of the executor for sockets",
    )


def _end(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)
