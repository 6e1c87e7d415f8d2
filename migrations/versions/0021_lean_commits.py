"""A worker records that the end of a turn was announced, and releases its lease, in one call; and a commit without
effects or usage skips them. Run before the deploy: the previous version does not call the new function, and what it
passes to the other is still accepted.
"""

from scripts import save_functions

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    save_functions(["append_commit", "release_announced"])
