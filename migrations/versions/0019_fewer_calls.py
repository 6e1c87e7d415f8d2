"""A message is accepted in one call, and so is a conversation loaded. Run before the deploy that needs it: the previous
version doesn't call the new functions.
"""

from scripts import save_functions

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    save_functions(["claim_key", "accept_turn", "load_conversation"])
