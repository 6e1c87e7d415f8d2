"""Chooses the mode of this process. Only its module is imported, because the libraries of the others may be missing."""

import sys
from typing import Final

MODES: Final = ("bubblewrap", "pair", "broker")
_WRONG_USE: Final = 2


def main() -> int:
    """Return the exit code of `python -m exec_supervisor [bubblewrap | pair | broker]`; bubblewrap is the default."""
    match sys.argv[1] if len(sys.argv) > 1 else "bubblewrap":
        case "bubblewrap":
            from exec_supervisor.bubblewrap.entry import main as run
        case "pair":
            from exec_supervisor.pair.entry import main as run
        case "broker":
            from exec_supervisor.broker.entry import main as run
        case _:
            sys.stderr.write(f"usage: python -m exec_supervisor [{' | '.join(MODES)}]\n")
            return _WRONG_USE
    return run()
