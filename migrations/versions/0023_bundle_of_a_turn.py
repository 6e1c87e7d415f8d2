"""`accept_turn` refuses a turn whose bundle its person may not use. Run before the deploy that needs it: the previous
version passes no bundles, which allows any.
"""

from alembic import op
from scripts import save_functions

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    # It has one more parameter, with which CREATE OR REPLACE would make a second function.
    op.execute("DROP FUNCTION IF EXISTS accept_turn")
    save_functions(["accept_turn"])
