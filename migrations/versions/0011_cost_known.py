"""The ledger tells calls without a price from calls that cost nothing.

Run before the deploy that uses it: services of the version before go on. Forward only."""

from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.execute("ALTER TABLE usage_event ADD COLUMN cost_known boolean NOT NULL DEFAULT true")
