"""Chooses what this process is. Each kind is loaded by name: where one runs, the libraries of the others are absent."""

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
    """The exit code of `python -m exec_supervisor [bubblewrap | pair | broker]`; the first is meant where none is."""
    mode = sys.argv[1] if len(sys.argv) > 1 else _DEFAULT
    if mode not in MODES:
        sys.stderr.write(f"usage: python -m exec_supervisor [{' | '.join(MODES)}]\n")
        return _WRONG_USE
    code: int = importlib.import_module(MODES[mode]).main()
    return code
