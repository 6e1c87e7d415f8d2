"""The release of a lease returns whether work is left. Run before or after the deploy: both versions accept both."""

from scripts import save_functions

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    save_functions(["release_lease"])
