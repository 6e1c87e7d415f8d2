"""The metrics that services share, each defined once. Names and units follow Prometheus; no label is an id or a text.

`docs/metrics.md` lists them, made from here, with the words that all metrics have for labels.
"""

from collections.abc import Mapping
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

LABELS: Final[Mapping[str, str]] = {
    "kind": "Which sort of what the metric counts.",
    "lane": "The queue of a turn, by the strongest role of who asked.",
    "launcher": "What starts sandboxes: containers or bubblewrap.",
    "loop": "A loop that serves the whole process.",
    "method": "The method of an HTTP request, or `other`.",
    "model": "A model as the operator configured it.",
    "outcome": "How something ended that was begun.",
    "part": "A part that `/readyz` asks, as it names it.",
    "reason": "Why something happened that nobody asked for: a refusal, a loss, a break, a summary.",
    "role": "The strongest role of who asked, `none` before that is known.",
    "route": "The route of an HTTP request, as its template, or `none`.",
    "state": "What things that are there now are doing.",
    "status": "The status code of an HTTP response, and nothing else.",
    "table": "A table of the database.",
    "tool_id": "A tool that is offered, else `none`.",
}
"""Every label there is, with its one meaning. Who needs another word has to say here what none of these says."""

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
    "From the request to the end of a reply, retries included, by model and kind: decision, summary or title.",
    ["model", "kind"],
    buckets=_WORK_S,
)
MODEL_CALLS_FAILED = Counter(
    "everturn_model_calls_failed", "Model calls that gave no whole reply, by model and kind.", ["model", "kind"]
)
NO_TOOL: Final = "none"
"""The label of a tool that is not offered, whatever it was called."""
TOOL_SECONDS = Histogram(
    "everturn_tool_seconds",
    "Tool calls that were begun, by tool and outcome.",
    ["tool_id", "outcome"],
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
    "Programs in their sandbox, from launch to result, by launcher and outcome.",
    ["launcher", "outcome"],
    buckets=_WORK_S,
)
TURNS_TAKEN_OVER = Counter(
    "everturn_turns_taken_over", "Turns claimed again because their worker was gone since their last commit."
)
TURN_CRASHES = Counter(
    "everturn_turn_crashes", "Times that our own code failed on a turn. Each one is a defect to look into."
)
SPANS_ENDED = Counter("everturn_trace_spans_ended", "Spans that ended; those never sent wait or were dropped.")
SPANS_SENT = Counter(
    "everturn_trace_spans_sent", "Spans sent to the collector, by outcome: whether it took them.", ["outcome"]
)
LOOP_ERRORS = Counter(
    "everturn_loop_errors",
    "Unexpected errors that a loop of the process logged and survived, by loop. Each one is a defect to look into.",
    ["loop"],
)
LOG_LINES_LOST = Counter(
    "everturn_log_lines_lost", "Log lines that could not be written, as where the disk of the logs is full."
)
UNKNOWN_VALUES = Counter(
    "everturn_unknown_values",
    "Values read from rows or wires that this version does not know, by kind. A newer version has written them.",
    ["kind"],
)
SWEEPS = Counter("everturn_sweeps", "Looks for work that nobody does, by outcome.", ["outcome"])
STREAMS_TRIMMED = Counter("everturn_streams_trimmed", "Ended turns whose events were removed from Redis.")
WIRE_MEMORY = Gauge(
    "everturn_wire_memory_bytes", "Memory of Redis, by kind: what is used, and the limit (0 without one).", ["kind"]
)
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
TURNS_DEFERRED = Counter(
    "everturn_turns_deferred", "Claims left to another waiting turn, because the user or the tenant is over a bound."
)
EXTRA_SLOTS_USED = Counter(
    "everturn_extra_slots_used",
    "Turns started beyond the ordinary slots, by kind: reserved for users that had none running, or lent.",
    ["kind"],
)
TURNS_CLAIMED = Counter("everturn_turns_claimed", "Leases taken to run a turn or to announce its end.")
TURNS_ENDED = Counter("everturn_turns_ended", "Turns that reached their terminal block, by outcome.", ["outcome"])
ROUNDS = Counter("everturn_rounds", "Model replies that were read to the end.")
TOKENS = Counter("everturn_tokens", "Tokens by model and kind: input and output.", ["model", "kind"])
PROMPT_BREAKS = Counter("everturn_prompt_breaks", "Changes of what earlier requests held, by reason.", ["reason"])
COMPACTIONS = Counter("everturn_compactions", "Summaries appended to timelines, by reason.", ["reason"])
MANIFESTS_LOST = Counter("everturn_manifests_lost", "Manifests of requests that were not kept.")
TOOL_CALLS = Counter("everturn_tool_calls", "Tool calls by tool and outcome.", ["tool_id", "outcome"])
CALLS_REVIEWED = Counter(
    "everturn_calls_reviewed",
    "Tool calls that were not free to be made, by tool and outcome: asked or refused.",
    ["tool_id", "outcome"],
)
STRAGGLERS = Counter("everturn_stragglers", "Tasks that ignored two cancellations and were left behind.")
CANCELLATIONS_KEPT = Counter("everturn_cancellations_kept", "Cancellations raised again after an error replaced them.")
TURNS_STALLED = Counter("everturn_turns_stalled", "Turns given back: no progress, and no call was open.")
ANNOUNCEMENTS_FAILED = Counter("everturn_announcements_failed", "Tries to tell of a turn's end that failed.")
EVENTS_PUBLISHED = Counter("everturn_events_published", "Events handed to the live wire.")
REWINDS = Counter("everturn_rewinds", "Turns shown anew from their committed state.")
TURNS_LOST = Counter("everturn_turns_lost", "Turns a worker stopped, without its lease or without the database.")
TURNS_GIVEN_BACK = Counter("everturn_turns_given_back", "Lost turns returned to the queue after an outage.")
LEASES_LOST = Counter("everturn_leases_lost", "Leases a worker lost while it ran a turn.")
LEASES_ERASED = Counter("everturn_leases_erased", "Leases that ended because their conversation was erased.")
SWEPT = Counter("everturn_doorbells_swept", "Doorbells the sweeper rang again.")
MESSAGES_ACCEPTED = Counter("everturn_messages_accepted", "Messages accepted, by kind: turn or signal.", ["kind"])
PROBLEMS = Counter("everturn_http_problems", "Problem responses by kind and status.", ["kind", "status"])
STREAM_RESYNCS = Counter("everturn_stream_resyncs", "Streams that got a gap and a snapshot, by reason.", ["reason"])
TURNS_INDEXED = Counter(
    "everturn_turns_indexed", "Ended turns that memory search is done with, by outcome.", ["outcome"]
)
SNIPPETS_INDEXED = Counter("everturn_snippets_indexed", "Snippets that memory search was given.")
SANDBOXES_TAKEN = Counter(
    "everturn_sandboxes_taken", "Sandboxes taken for a run, by kind: cold or booted ahead.", ["kind"]
)
SANDBOXES_DISCARDED = Counter(
    "everturn_sandboxes_discarded", "Sandboxes booted ahead that no run got, by reason.", ["reason"]
)
SANDBOX_BOOTS_FAILED = Counter("everturn_sandbox_boots_failed", "Sandboxes that did not boot ahead of a run.")
CONVERSATIONS_EXPIRED = Counter("everturn_conversations_expired", "Conversations erased because nothing happened.")
RETENTION_FAILED = Counter(
    "everturn_retention_failed",
    "Work of retention that failed, by kind: what is due, conversations, their events or objects, rows, orphans.",
    ["kind"],
)
ORPHANS_DELETED = Counter("everturn_orphans_deleted", "Stored objects deleted because no row names them.")
ROWS_EXPIRED = Counter("everturn_rows_expired", "Rows removed because they ran out or were too old.", ["table"])
