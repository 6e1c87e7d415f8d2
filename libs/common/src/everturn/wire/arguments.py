"""One hash for the arguments of a program's call, the same in the supervisor's audit and in the worker's ledger."""

import hashlib
import json
from collections.abc import Mapping
from typing import Final

from everturn.wire.execution import GATEWAY_FRAME_BYTES
from everturn.wire.framing import encode_frame

_LENGTH_BYTES: Final = 4


def hash_arguments(arguments: Mapping[str, object]) -> str:
    """SHA-256 in hex of the arguments as JSON with names sorted at every depth. Raises FrameError.

    Bytes are written as they travel, so equal arguments have one hash however a program spelt them.
    """
    sent: object = json.loads(encode_frame(arguments, 2 * GATEWAY_FRAME_BYTES)[_LENGTH_BYTES:])
    return hashlib.sha256(json.dumps(sent, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
