"""The index of running turns, which 0010 built while writers waited, is built beside them.

Run before the deploy that uses it: services of the version before go on. Forward only."""

from indexes import build_index

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    build_index("turn_running", "ON turn (tenant, user_id, lane, conversation_id) WHERE status = 'running'")
