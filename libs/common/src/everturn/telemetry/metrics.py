"""The counters of all services, each defined once. Names follow Prometheus: `everturn_<what>_total`."""

from prometheus_client import Counter

TURNS_CLAIMED = Counter("everturn_turns_claimed", "Leases taken to run a turn or to announce its end.")
TURNS_ENDED = Counter("everturn_turns_ended", "Turns that reached their terminal block, by status.", ["status"])
ROUNDS = Counter("everturn_rounds", "Model replies that were read to the end.")
TOKENS = Counter("everturn_tokens", "Tokens by model and direction.", ["model", "direction"])
PROMPT_BREAKS = Counter("everturn_prompt_breaks", "Changes of what earlier requests held, by cause.", ["cause"])
COMPACTIONS = Counter("everturn_compactions", "Summaries appended to timelines, by why they were made.", ["reason"])
MANIFESTS_LOST = Counter("everturn_manifests_lost", "Manifests of requests that were not kept.")
TOOL_CALLS = Counter("everturn_tool_calls", "Tool calls by tool and how they ended.", ["tool_id", "status"])
STRAGGLERS = Counter("everturn_stragglers", "Tool calls that went on after they were cancelled and were left behind.")
ANNOUNCEMENTS_FAILED = Counter("everturn_announcements_failed", "Ends of turns whose announcement broke off.")
EVENTS_PUBLISHED = Counter("everturn_events_published", "Events handed to the live wire.")
REWINDS = Counter("everturn_rewinds", "Turns shown anew from their committed state.")
LEASES_LOST = Counter("everturn_leases_lost", "Leases a worker lost while it ran a turn.")
SWEPT = Counter("everturn_doorbells_swept", "Doorbells the sweeper rang again.")
MESSAGES_ACCEPTED = Counter("everturn_messages_accepted", "Messages accepted, as a turn or as a signal.", ["as_"])
PROBLEMS = Counter("everturn_http_problems", "Problem responses by type and status.", ["type", "status"])
STREAM_RESYNCS = Counter("everturn_stream_resyncs", "Streams that got a gap and a snapshot, by cause.", ["cause"])
TURNS_INDEXED = Counter("everturn_turns_indexed", "Ended turns that memory search is done with, by how.", ["outcome"])
SNIPPETS_INDEXED = Counter("everturn_snippets_indexed", "Snippets that memory search was given.")
SANDBOXES_TAKEN = Counter("everturn_sandboxes_taken", "Sandboxes taken for a run, cold or booted ahead.", ["start"])
SANDBOXES_DISCARDED = Counter(
    "everturn_sandboxes_discarded", "Sandboxes booted ahead that no run got, by why.", ["why"]
)
SANDBOX_BOOTS_FAILED = Counter("everturn_sandbox_boots_failed", "Sandboxes that did not boot ahead of a run.")
CONVERSATIONS_EXPIRED = Counter("everturn_conversations_expired", "Conversations erased because nothing happened.")
RETENTION_FAILED = Counter(
    "everturn_retention_failed", "What retention could not do: find what is due, rows, events or objects.", ["what"]
)
ORPHANS_DELETED = Counter("everturn_orphans_deleted", "Stored objects deleted because no row names them.")
ROWS_EXPIRED = Counter("everturn_rows_expired", "Rows removed because they ran out or were too old.", ["table"])
