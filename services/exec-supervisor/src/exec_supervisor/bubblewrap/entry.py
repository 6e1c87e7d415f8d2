"""A supervisor that builds the walls itself, as its worker's child: the first thing it is told is which ones."""

from functools import partial

from exec_supervisor.bubblewrap.room import open_room
from exec_supervisor.supervisor.lifeline import LifelineCut
from exec_supervisor.supervisor.run import run_supervisor
from exec_supervisor.supervisor.standard_streams import ENDED_EARLY, LIFELINE, run_on_standard_streams
from exec_supervisor.supervisor.worker_line import WorkerLine


def main() -> int:
    """The exit code: 1 when it was ended before the result was sent."""
    return run_on_standard_streams(_serve)


async def _serve(line: WorkerLine) -> int:
    try:
        boot = await line.receive_boot()
    except LifelineCut:
        return ENDED_EARLY
    return await run_supervisor(line, LIFELINE, partial(open_room, boot))
