"""The users of the Redis server: the permissions of ingresses and workers, each with its own keys and no
administration.

The default user is reserved for the operator. Its password is given to no service.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Final

INGRESS, WORKER = "everturn_ingress", "everturn_worker"
CHANNELS: Final = "resetchannels &events:* &hints &inbox:*"
COMMANDS: Final = (
    "-@all +@read +@write +@pubsub +@scripting +@transaction +@connection +time"
    # Administration, and commands that reveal keys of others, which no pattern restricts.
    " -@admin -@dangerous -scan -randomkey -dbsize -pubsub -function -script|flush -script|kill"
    # The memory usage, which determines what is accepted.
    " +info"
)
RULES: Final[Mapping[str, str]] = {
    INGRESS: f"resetkeys ~events:* ~bucket:* %W~turns:* %R~workers %R~worker:* ~operations:* {CHANNELS} {COMMANDS}",
    WORKER: f"resetkeys ~events:* ~turns:* ~workers ~worker:* ~operations:* {CHANNELS} {COMMANDS}",
}
"""By user: an ingress rings doorbells but can't read them, and reads the list of workers. It also manages limits, which
workers can't access."""


def derive_password(operator_password: str, user: str) -> str:
    """The password of a service's user, from which the operator's can't be derived."""
    return hmac.digest(operator_password.encode(), f"redis user {user}".encode(), "sha256").hex()


def build_user_lines(operator_password: str) -> Sequence[str]:
    """The users as lines of the server's configuration file, with the hashes of their passwords."""
    lines: list[str] = []
    for user, rules in RULES.items():
        digest = hashlib.sha256(derive_password(operator_password, user).encode()).hexdigest()
        lines.append(f"user {user} reset on #{digest} {rules}")
    return lines
