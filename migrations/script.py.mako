"""${message}. Run ${"before"} or after the deploy that needs it: say which, and why old workers go on."""

from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    ${upgrades if upgrades else "op.execute('')"}
