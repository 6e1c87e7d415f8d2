"""${message}. Run ${"before"} or after the deploy that needs it: say which, and why the services of the previous version keep working."""

from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    ${upgrades if upgrades else "op.execute('')"}
