"""The depth of the queue no longer counts tenants, which sorted all waiting turns for each accepted message. Run before
or after the deploy: no version reads the count. `next_of_tenant` works as before; only its comment has changed.
"""

from scripts import save_functions

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    save_functions(["queue_depth", "next_of_tenant"])
