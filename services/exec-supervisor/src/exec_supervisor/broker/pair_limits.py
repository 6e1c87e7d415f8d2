"""What the halves of a pair have in every engine: users, the folder of their sockets, the supervisor's limits.

The images contain both users and the folder.
"""

from typing import Final

from everturn.execution.messages import GATEWAY_SOCKET, MIB

SOCKET_DIR: Final = GATEWAY_SOCKET.rpartition("/")[0]
SUPERVISOR_UID: Final = 1002
SOCKET_GROUP: Final = 1001

SUPERVISOR_MEMORY_BYTES: Final = 256 * MIB
SUPERVISOR_PROCESSES: Final = 32
SUPERVISOR_OPEN_FILES: Final = 512
RUNNER_PROCESSES: Final = 4
"""The runner and what it needs in addition to the program: its zygote and a reader per stream."""

RUNNER_OPEN_FILES: Final = 64

COMBINED_MEMORY_BYTES: Final = 64 * MIB
"""For the supervisor in its program's container. It needs 20 MiB, and more while it forwards large calls."""

COMBINED_PROCESSES: Final = 2
"""The supervisor, and the process that kills all others at the end."""
