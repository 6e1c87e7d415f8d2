"""A supervisor that builds the sandbox itself, as its worker's child: its first message describes the sandbox."""

from functools import partial

from exec_supervisor.bubblewrap.sandbox import open_sandbox
from exec_supervisor.supervisor.lifeline import LifelineCut
from exec_supervisor.supervisor.run import run_supervisor
from exec_supervisor.supervisor.standard_streams import ENDED_EARLY, LIFELINE, run_on_standard_streams
from exec_supervisor.supervisor.worker_line import WorkerLine


def main() -> int:
    """Return the exit code: 1 when it was terminated before the result was sent."""
    return run_on_standard_streams(_serve)


async def _serve(line: WorkerLine) -> int:
    try:
        boot = await line.receive_boot()
    except LifelineCut:
        return ENDED_EARLY
    return await run_supervisor(line, LIFELINE, partial(open_sandbox, boot))
