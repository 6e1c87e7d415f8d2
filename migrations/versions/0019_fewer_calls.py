"""A message is accepted in one call. Run before the deploy that needs it: the previous version doesn't call the new
function.
"""

from scripts import save_functions

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    save_functions(["accept_turn"])
