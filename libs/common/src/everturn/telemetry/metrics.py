"""The metrics that services share, each defined once. Names and units follow Prometheus; no label is an id or a text.

`docs/metrics.md` lists them, made from here.
"""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

_WAITS_S: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_WORK_S: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)

QUEUE_SECONDS = Histogram(
    "everturn_turn_queue_seconds",
    "From the commit that accepted a turn to the first worker that took it, by lane.",
    ["lane"],
    buckets=_WAITS_S,
)
FIRST_TOKEN_SECONDS = Histogram(
    "everturn_turn_first_token_seconds",
    "From the commit that accepted a turn to the first text shown of it, thinking included.",
    buckets=_WAITS_S,
)
FIRST_ANSWER_SECONDS = Histogram(
    "everturn_turn_first_answer_seconds",
    "From the commit that accepted a turn to the first text of its answer.",
    buckets=_WAITS_S,
)
TURN_SECONDS = Histogram(
    "everturn_turn_seconds",
    "From the commit that accepted a turn to the one that ended it, waits for a person left out, by outcome.",
    ["outcome"],
    buckets=_WAITS_S,
)
ROUND_SECONDS = Histogram(
    "everturn_round_seconds", "From a round's request to the commit of what was decided.", buckets=_WORK_S
)
MODEL_CALL_SECONDS = Histogram(
    "everturn_model_call_seconds",
    "From the request to the end of a reply that decides what happens next, by model, retries included.",
    ["model"],
    buckets=_WORK_S,
)
MODEL_CALLS_FAILED = Counter(
    "everturn_model_calls_failed", "Model calls that gave no whole reply, by model.", ["model"]
)
NO_TOOL: Final = "none"
"""The label of a tool that is not offered, whatever it was called."""
TOOL_SECONDS = Histogram(
    "everturn_tool_seconds",
    "Tool calls that were begun, by tool and how they ended.",
    ["tool_id", "status"],
    buckets=_WORK_S,
)
SANDBOX_BOOT_SECONDS = Histogram(
    "everturn_sandbox_boot_seconds",
    "How long a program waited for its sandbox, by launcher; next to nothing where one was booted ahead.",
    ["launcher"],
    buckets=_WORK_S,
)
SANDBOX_RUN_SECONDS = Histogram(
    "everturn_sandbox_run_seconds",
    "Programs in their sandbox, from launch to result, by launcher and whether they succeeded.",
    ["launcher", "ok"],
    buckets=_WORK_S,
)
TURNS_TAKEN_OVER = Counter(
    "everturn_turns_taken_over", "Turns claimed again because their worker was gone since their last commit."
)
TRACE_SPANS = Counter(
    "everturn_trace_spans",
    "Spans that ended, and of these the exported and those the collector did not take; others wait or were dropped.",
    ["result"],
)
SWEEPS = Counter("everturn_sweeps", "Looks for work that nobody does, by result.", ["result"])
WORKER_SLOTS = Gauge("everturn_worker_slots", "Turns that this worker runs at once at most.")
WORKER_TURNS = Gauge("everturn_worker_turns", "Turns that this worker runs now.")
COST_USD = Counter(
    "everturn_cost_usd",
    "What model calls cost in US dollars, by model; models without a known price say nothing.",
    ["model"],
)
UNPRICED_CALLS = Counter(
    "everturn_unpriced_model_calls",
    "Model calls that are not in the cost, as nobody knows their price, by model.",
    ["model"],
)
CACHED_TOKENS = Counter(
    "everturn_cached_tokens",
    "Of the input tokens those that came from the provider's cache (read) or went into it (written), by model.",
    ["model", "kind"],
)
TURNS_CLAIMED = Counter("everturn_turns_claimed", "Leases taken to run a turn or to announce its end.")
TURNS_ENDED = Counter("everturn_turns_ended", "Turns that reached their terminal block, by outcome.", ["outcome"])
ROUNDS = Counter("everturn_rounds", "Model replies that were read to the end.")
TOKENS = Counter("everturn_tokens", "Tokens by model and direction.", ["model", "direction"])
PROMPT_BREAKS = Counter("everturn_prompt_breaks", "Changes of what earlier requests held, by cause.", ["cause"])
COMPACTIONS = Counter("everturn_compactions", "Summaries appended to timelines, by why they were made.", ["reason"])
MANIFESTS_LOST = Counter("everturn_manifests_lost", "Manifests of requests that were not kept.")
TOOL_CALLS = Counter("everturn_tool_calls", "Tool calls by tool and how they ended.", ["tool_id", "status"])
STRAGGLERS = Counter("everturn_stragglers", "Tool calls that went on after they were cancelled and were left behind.")
ANNOUNCEMENTS_FAILED = Counter("everturn_announcements_failed", "Tries to tell of a turn's end that failed.")
EVENTS_PUBLISHED = Counter("everturn_events_published", "Events handed to the live wire.")
REWINDS = Counter("everturn_rewinds", "Turns shown anew from their committed state.")
LEASES_LOST = Counter("everturn_leases_lost", "Leases a worker lost while it ran a turn.")
LEASES_ERASED = Counter("everturn_leases_erased", "Leases that ended because their conversation was erased.")
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
