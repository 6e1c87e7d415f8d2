"""The whole schema. Run before the first deploy. Forward only.

Its number is that of the last of the fifteen versions it replaces: a database at that version has this schema.
"""

from scripts import run_script, save_functions

revision = "0015"
down_revision = None

TABLES = ("conversations", "turns", "timeline", "files", "feedback", "memory", "accounts", "lifecycle")
"""Files of sql/tables, one per capability, in the order of their references."""
FUNCTIONS = (
    # leases and the queue
    "claim_fairly",
    "claim_conversation",
    "rank_waiting",
    "find_extra_turn",
    "renew_leases",
    "release_lease",
    "count_leased_time",
    "take_doorbell",
    "next_of_tenant",
    "due_doorbells",
    "note_ring",
    "queue_depth",
    "queue_lanes",
    "queue_positions",
    # blocks and forks
    "append_blocks",
    "append_fork_blocks",
    "copy_fork_sources",
    # approvals
    "answer_approval",
    "expire_approvals",
    "park_turn",
    "wake_turn",
    # memory search
    "claim_unindexed",
    "nearest_snippets",
    "search_snippets",
    # feedback
    "feedback_totals",
    "judged_conversations",
    "project_feedback_totals",
    "project_judged_conversations",
    # credentials and usage
    "find_api_key",
    "find_credential_cutoff",
    "add_usage_totals",
    # erasure and retention
    "erase_conversation",
    "count_remains",
    "named_objects",
    "find_orphan_objects",
    "find_expiry",
    "is_expired",
    "due_conversations",
    "expire_conversation",
    "remove_expired_rows",
)
"""Functions of sql/functions. A later version that drops one, or gives it a type that the baseline doesn't have, takes
it out of this list."""


def upgrade() -> None:
    run_script("roles")
    for name in TABLES:
        run_script(f"tables/{name}")
    run_script("policies")
    run_script("grants")
    save_functions(FUNCTIONS)
    run_script("triggers")
