"""A turn is claimed again for the index only after an attempt can't run any more. Both versions of the services run."""

from scripts import save_functions

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    save_functions(["claim_unindexed"])
