"""A turn is claimed again for the index only after an attempt can't run any more; and a turn enters the queue in one
call. Run before the deploy that needs it: the previous version doesn't call the new function.
"""

from scripts import save_functions

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    save_functions(["claim_unindexed", "enter_queue"])
