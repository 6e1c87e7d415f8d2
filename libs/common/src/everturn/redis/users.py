"""The users of the Redis server: what ingresses and workers may do there, each with its own keys and no administration.

The default user stays the operator's. Its password is given to no service.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Final

INGRESS, WORKER = "everturn_ingress", "everturn_worker"
CHANNELS: Final = "resetchannels &hints &inbox:*"
COMMANDS: Final = (
    "-@all +@read +@write +@pubsub +@scripting +@transaction +@connection +time"
    # Administration, and what names the keys of others, which no pattern restricts.
    " -@admin -@dangerous -scan -randomkey -dbsize -pubsub -function -script|flush -script|kill"
    # How full the memory is, which decides what is accepted.
    " +info"
)
RULES: Final[Mapping[str, str]] = {
    INGRESS: f"resetkeys ~events:* ~wake:* ~bucket:* ~room:* %W~turns:* %R~workers %R~worker:* {CHANNELS} {COMMANDS}",
    WORKER: f"resetkeys ~events:* ~turns:* ~workers ~worker:* {CHANNELS} {COMMANDS}",
}
"""By user: an ingress rings doorbells and takes none, and reads which workers there are. It keeps limits and waiting
rooms, which are no worker's business."""


def derive_password(operator_password: str, user: str) -> str:
    """The password of a service's user, from which the operator's can't be found."""
    return hmac.digest(operator_password.encode(), f"redis user {user}".encode(), "sha256").hex()


def build_user_lines(operator_password: str) -> Sequence[str]:
    """The users as lines of the server's configuration file, by the hashes of their passwords."""
    lines: list[str] = []
    for user, rules in RULES.items():
        digest = hashlib.sha256(derive_password(operator_password, user).encode()).hexdigest()
        lines.append(f"user {user} reset on #{digest} {rules}")
    return lines
