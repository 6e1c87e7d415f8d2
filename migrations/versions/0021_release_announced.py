"""A worker records that the end of a turn was announced, and releases its lease, in one call. Run before the deploy:
the previous version does not call the function.
"""

from scripts import save_functions

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    save_functions(["release_announced"])
