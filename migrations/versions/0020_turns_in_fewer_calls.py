"""A worker starts, ends and indexes a turn in fewer calls. Run before the deploy: the previous version calls none of
these functions, and what it calls stays.
"""

from scripts import save_functions

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    save_functions(
        [
            "append_commit",
            "close_turn",
            "load_recent_blocks",
            "may_have_next",
            "load_turn_start",
            "save_announced",
            "load_indexed_blocks",
            "save_snippets",
        ]
    )
