"""How much a turn may have and add in its workspace. ANNOUNCE shows these numbers, the tools keep them."""

from everturn.wire.execution import RunLimits

MIB = 1024 * 1024

MAX_TEXT_BYTES = 2 * MIB
"""Of a text that is written or patched: far above what one reply of a model can hold."""
MAX_FILE_BYTES = RunLimits().file_bytes
"""Of one produced file: what the sandbox lets a program write."""
MAX_DELTA_BYTES = 250 * MIB
"""Of all files that one turn writes together."""
MAX_WORKSPACE_FILES = 500
"""In `files/` of one turn. A checkout names each of them in its block."""
MAX_PULL_FILES = 500
MAX_PULL_BYTES = 256 * MIB
"""Of all that one turn pulls: as much as the sandbox's work folder holds."""
MAX_PATHS = 50
"""In one call of pull or checkout."""


def describe_limits() -> str:
    """One line for the model."""
    return (
        f"one file {MAX_FILE_BYTES // MIB} MB, text written in one call {MAX_TEXT_BYTES // MIB} MB, "
        f"all files written in a turn {MAX_DELTA_BYTES // MIB} MB, files/ {MAX_WORKSPACE_FILES} files, "
        f"pulled {MAX_PULL_FILES} files and {MAX_PULL_BYTES // MIB} MB"
    )
