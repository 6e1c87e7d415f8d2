"""Chooses the mode of this process. Each mode is imported by name, because the libraries of the others may be
missing."""

import importlib
import sys
from typing import Final

MODES: Final = {
    "bubblewrap": "exec_supervisor.bubblewrap.entry",
    "pair": "exec_supervisor.pair.entry",
    "broker": "exec_supervisor.broker.entry",
}
_DEFAULT: Final = "bubblewrap"
_WRONG_USE: Final = 2


def main() -> int:
    """Return the exit code of `python -m exec_supervisor [bubblewrap | pair | broker]`; bubblewrap is the default."""
    mode = sys.argv[1] if len(sys.argv) > 1 else _DEFAULT
    if mode not in MODES:
        sys.stderr.write(f"usage: python -m exec_supervisor [{' | '.join(MODES)}]\n")
        return _WRONG_USE
    code: int = importlib.import_module(MODES[mode]).main()
    return code
