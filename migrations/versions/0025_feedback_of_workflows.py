"""Workers add feedback of machines in the commits of their turns. Run before the deploy; the previous version adds
none.
"""

from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    op.execute("GRANT INSERT ON feedback TO everturn_worker")
