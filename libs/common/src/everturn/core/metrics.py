"""The metrics that services share, each defined once. Names and units follow Prometheus; no label is an id or a text.

`docs/metrics.md` lists them and is generated from here, with the labels that all metrics use.
"""

from collections.abc import Mapping
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

LABELS: Final[Mapping[str, str]] = {
    "engine": "Where detached runs go on.",
    "kind": "Kind of the things that the metric counts.",
    "lane": "The queue of a turn, chosen by the caller's strongest role.",
    "launcher": "What starts sandboxes, as in `EXECUTION_MODE`.",
    "loop": "A loop that serves the whole process.",
    "method": "The method of an HTTP request, or `other`.",
    "model": "A model as the operator configured it.",
    "outcome": "How an operation ended.",
    "part": "A part that `/readyz` checks, by the name used there.",
    "reason": "Why something happened, such as a rejection, a loss, a break or a summary.",
    "role": "The caller's strongest role, `none` before it is known.",
    "route": "The route template of an HTTP request, or `none`.",
    "stage": "A stage of a turn, as clients see it.",
    "state": "The current state of the things counted.",
    "status": "The status code of an HTTP response, and nothing else.",
    "table": "A table of the database.",
    "tool_id": "An offered tool, otherwise `none`.",
}
"""Every label with its one meaning. Define a new label here only if none of these fits."""

_WAITS_S: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_WORK_S: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)

QUEUE_SECONDS = Histogram(
    "everturn_turn_queue_seconds",
    "Time from the commit that accepted a turn to its claim by the first worker, by lane.",
    ["lane"],
    buckets=_WAITS_S,
)
FIRST_TOKEN_SECONDS = Histogram(
    "everturn_turn_first_token_seconds",
    "Time from the commit that accepted a turn to its first text, including thinking.",
    buckets=_WAITS_S,
)
FIRST_ANSWER_SECONDS = Histogram(
    "everturn_turn_first_answer_seconds",
    "Time from the commit that accepted a turn to the first text of its answer.",
    buckets=_WAITS_S,
)
TURN_SECONDS = Histogram(
    "everturn_turn_seconds",
    "Time from the commit that accepted a turn to the one that ended it, without waits for a person, by outcome.",
    ["outcome"],
    buckets=_WAITS_S,
)
ROUND_SECONDS = Histogram(
    "everturn_round_seconds", "Time from a round's request to the commit of its decision.", buckets=_WORK_S
)
MODEL_CALL_SECONDS = Histogram(
    "everturn_model_call_seconds",
    "Time from the request to the end of a reply, retries included, by model and kind: coding, decision, planning,"
    " selection, summary, synthesis, title, tool or workflow.",
    ["model", "kind"],
    buckets=_WORK_S,
)
MODEL_CALLS_FAILED = Counter(
    "everturn_model_calls_failed", "Model calls without a complete reply, by model and kind.", ["model", "kind"]
)
WORKFLOW_DECISIONS = Counter(
    "everturn_workflow_decisions",
    "Decisions about the steps of turns with the workflow dag, by kind: plan, unplanned, continue, replan or done.",
    ["kind"],
)
WORKFLOW_STEPS = Counter(
    "everturn_workflow_steps", "Plan steps (workflow dag) that ended, by outcome: ok, failed or cancelled.", ["outcome"]
)
NO_TOOL: Final = "none"
"""The label of a tool that is not offered, whatever its name."""
TOOL_SECONDS = Histogram(
    "everturn_tool_seconds",
    "Duration of tool calls, by tool and outcome.",
    ["tool_id", "outcome"],
    buckets=_WORK_S,
)
SANDBOX_BOOT_SECONDS = Histogram(
    "everturn_sandbox_boot_seconds",
    "How long a program waited for its sandbox, by launcher; near zero for a sandbox that was booted ahead.",
    ["launcher"],
    buckets=_WORK_S,
)
SANDBOX_RUN_SECONDS = Histogram(
    "everturn_sandbox_run_seconds",
    "Run time of programs in their sandbox, from launch to result, by launcher and outcome.",
    ["launcher", "outcome"],
    buckets=_WORK_S,
)
TURNS_TAKEN_OVER = Counter(
    "everturn_turns_taken_over", "Turns claimed again because their worker disappeared after their last commit."
)
TURN_CRASHES = Counter(
    "everturn_turn_crashes", "Times that Everturn's own code failed on a turn. Each one is a bug to investigate."
)
BUNDLES = Gauge("everturn_bundles", "Bundles of this worker, by state: ready, or refused content.", ["state"])
BUNDLES_REFUSED = Counter(
    "everturn_bundles_refused", "Times that a version of a bundle was refused. `GET /bundles` and the log say why."
)
BUNDLE_FETCHES = Counter(
    "everturn_bundle_fetches",
    "Checks of the repositories of bundles from git, by outcome: fetched, unchanged, refused (the newest commit can't "
    "be used), or failed.",
    ["outcome"],
)
SPANS_ENDED = Counter("everturn_trace_spans_ended", "Spans that ended; those not sent are waiting or were dropped.")
SPANS_SENT = Counter(
    "everturn_trace_spans_sent", "Spans sent to the collector, by outcome: whether it accepted them.", ["outcome"]
)
LOOP_ERRORS = Counter(
    "everturn_loop_errors",
    "Unexpected errors that a loop of the process logged and survived, by loop. Each one is a bug to investigate.",
    ["loop"],
)
LOG_LINES_LOST = Counter(
    "everturn_log_lines_lost", "Log lines that could not be written, for example because the log disk was full."
)
DISK_FULL = Counter(
    "everturn_disk_full", "Writes that failed because the disk of Postgres or of stored files was full.", ["part"]
)
UNKNOWN_VALUES = Counter(
    "everturn_unknown_values",
    "Values read from rows or messages that this version does not know, by kind. A newer version wrote them.",
    ["kind"],
)
SWEEPS = Counter("everturn_sweeps", "Searches for work that no worker has claimed, by outcome.", ["outcome"])
STREAMS_TRIMMED = Counter("everturn_streams_trimmed", "Ended turns whose events were removed from Redis.")
REDIS_MEMORY = Gauge(
    "everturn_redis_memory_bytes", "Redis memory, by kind: used, and the limit (0 if there is none).", ["kind"]
)
WORKER_SLOTS = Gauge("everturn_worker_slots", "Ordinary slots of this worker; it can run as many again in extra ones.")
WORKER_TURNS = Gauge("everturn_worker_turns", "Turns that this worker runs now.")
COST_USD = Counter(
    "everturn_cost_usd",
    "Cost of model calls in US dollars, by model; models without a known price are not included.",
    ["model"],
)
UNPRICED_CALLS = Counter(
    "everturn_unpriced_model_calls",
    "Model calls that the cost does not include because their price is unknown, by model.",
    ["model"],
)
CACHED_TOKENS = Counter(
    "everturn_cached_tokens",
    "Input tokens that were read from the provider's cache (read) or written to it (written), by model.",
    ["model", "kind"],
)
TURNS_DEFERRED = Counter(
    "everturn_turns_deferred",
    "Claims deferred in favour of another waiting turn, because the user or the tenant exceeds a limit.",
)
EXTRA_SLOTS_USED = Counter(
    "everturn_extra_slots_used",
    "Turns started beyond the ordinary slots, by kind: reserved for users who had none running, or lent.",
    ["kind"],
)
TURNS_CLAIMED = Counter("everturn_turns_claimed", "Leases taken to run a turn or to announce its end.")
TURNS_ENDED = Counter("everturn_turns_ended", "Turns that reached their terminal block, by outcome.", ["outcome"])
ROUNDS = Counter("everturn_rounds", "Model replies that were read to the end.")
CODEC_SWITCHES = Counter(
    "everturn_codec_switches",
    "Replies in which a model made native tool calls although its codec is channels or json.",
)
TOKENS = Counter("everturn_tokens", "Tokens by model and kind: input and output.", ["model", "kind"])
PROMPT_BREAKS = Counter(
    "everturn_prompt_breaks", "Changes to content that earlier requests contained, by reason.", ["reason"]
)
COMPACTIONS = Counter("everturn_compactions", "Summaries appended to timelines, by reason.", ["reason"])
MANIFESTS_LOST = Counter("everturn_manifests_lost", "Manifests of requests that could not be stored.")
EXCHANGES_LOST = Counter("everturn_exchanges_lost", "Records of model calls of coding agents that could not be stored.")
TOOL_CALLS = Counter("everturn_tool_calls", "Tool calls by tool and outcome.", ["tool_id", "outcome"])
CALLS_REVIEWED = Counter(
    "everturn_calls_reviewed",
    "Tool calls that needed approval (asked) or were rejected (refused), by tool and outcome.",
    ["tool_id", "outcome"],
)
MCP_CONNECTIONS = Counter(
    "everturn_mcp_connections",
    "Connections to MCP servers that were opened (connected), were not opened (failed) or ended unexpectedly (lost), by"
    " outcome.",
    ["outcome"],
)
MCP_TOKENS = Counter(
    "everturn_mcp_tokens",
    "Access tokens for MCP servers that an authorization server issued (issued) or did not issue (failed), by outcome.",
    ["outcome"],
)
STRAGGLERS = Counter("everturn_stragglers", "Tasks that ignored two cancellations and were left behind.")
CANCELLATIONS_KEPT = Counter("everturn_cancellations_kept", "Cancellations raised again after an error replaced them.")
TURNS_STALLED = Counter(
    "everturn_turns_stalled", "Turns returned to the queue because they made no progress while no call was open."
)
ANNOUNCEMENTS_FAILED = Counter("everturn_announcements_failed", "Failed attempts to announce a turn's end.")
EVENTS_PUBLISHED = Counter("everturn_events_published", "Events passed to the event streams in Redis.")
REWINDS = Counter("everturn_rewinds", "Turns sent to clients again from their committed state.")
TIMELINES = Counter(
    "everturn_timelines",
    "Claimed turns, by kind of their timeline: warm (cached from an earlier turn), or cold (otherwise).",
    ["kind"],
)
TURNS_LOST = Counter("everturn_turns_lost", "Turns that a worker stopped because it lost its lease or the database.")
TURNS_REQUEUED = Counter("everturn_turns_requeued", "Lost turns returned to the queue after an outage.")
LEASES_LOST = Counter("everturn_leases_lost", "Leases a worker lost while it ran a turn.")
LEASES_ERASED = Counter("everturn_leases_erased", "Leases that ended because their conversation was erased.")
SWEPT = Counter("everturn_doorbells_swept", "Doorbells the sweeper rang again.")
MESSAGES_ACCEPTED = Counter("everturn_messages_accepted", "Messages accepted, by kind: turn or signal.", ["kind"])
PROBLEMS = Counter("everturn_http_problems", "Problem responses by kind and status.", ["kind", "status"])
STREAM_RESYNCS = Counter("everturn_stream_resyncs", "Streams that got a gap and a snapshot, by reason.", ["reason"])
TURNS_INDEXED = Counter(
    "everturn_turns_indexed", "Ended turns that memory search has processed, by outcome.", ["outcome"]
)
SNIPPETS_INDEXED = Counter("everturn_snippets_indexed", "Snippets added to the memory search index.")
KNOWLEDGE_BUILD_SECONDS = Histogram(
    "everturn_knowledge_build_seconds",
    "Duration of the builds of knowledge spaces, by outcome: built or failed.",
    ["outcome"],
    buckets=_WORK_S,
)
KNOWLEDGE_DOCUMENTS = Counter(
    "everturn_knowledge_documents",
    "Documents of the knowledge spaces that this worker built, by outcome: indexed, copied from the previous version, "
    "or skipped.",
    ["outcome"],
)
COLLECTIONS_BUILT = Counter(
    "everturn_collections_built", "Builds of collections' indexes, by outcome: built or failed.", ["outcome"]
)
PROJECT_SKILLS_UNREADABLE = Counter(
    "everturn_project_skills_unreadable",
    "Skills of projects that turns have to do without, because this version of the worker can't read them.",
)
SANDBOXES_TAKEN = Counter(
    "everturn_sandboxes_taken", "Sandboxes taken for a run, by kind: cold, or warm (booted ahead).", ["kind"]
)
SANDBOXES_DISCARDED = Counter(
    "everturn_sandboxes_discarded", "Sandboxes booted ahead and discarded unused, by reason.", ["reason"]
)
SANDBOX_BOOTS_FAILED = Counter("everturn_sandbox_boots_failed", "Sandboxes that did not boot ahead of a run.")
PROGRAM_CONNECTIONS = Counter(
    "everturn_program_connections",
    "Connections that programs asked for, by outcome: opened, not_allowed, not_public, unreachable or over_limit.",
    ["outcome"],
)
DETACHED_RUNS = Gauge(
    "everturn_detached_runs",
    "Runs of programs that this worker monitors while their turns wait without a worker, by engine.",
    ["engine"],
)
DETACHED_RUNS_ENDED = Counter(
    "everturn_detached_runs_ended",
    "Detached runs that ended, by engine and outcome: finished, lost (started again, three starts in all), failed "
    "(another start would not help), or overdue.",
    ["engine", "outcome"],
)
DETACHED_RUNS_FAILED = Counter(
    "everturn_detached_runs_failed",
    "Failed attempts to check, end or clean up detached runs.",
)
BATTERY_LAST_RUN = Gauge(
    "everturn_escape_battery_attempts",
    "Attempts of this worker's last run of the escape battery (BATTERY_INTERVAL_S), by state: denied, succeeded (an"
    " escape), or unanswered (it could not be made).",
    ["state"],
)
BATTERY_RUNS = Counter(
    "everturn_escape_battery_runs",
    "Runs of the escape battery in a worker that serves turns, by outcome: passed, failed (an attempt succeeded), or"
    " incomplete.",
    ["outcome"],
)
BUNDLE_HOSTS_RUNNING = Gauge("everturn_bundle_hosts_running", "Processes that run the code of bundles.")
BUNDLE_HOSTS_ENDED = Counter(
    "everturn_bundle_hosts_ended",
    "Processes of bundles that ended, by reason: blocked, closed, crashed, disk, exhausted, protocol, start or stuck.",
    ["reason"],
)
BUNDLE_OPERATION_SECONDS = Histogram(
    "everturn_bundle_operation_seconds",
    "Duration of operations of bundles, by outcome: ok, refused, invalid, forbidden, unknown, unavailable, failed,"
    " timeout, lost or cancelled.",
    ["outcome"],
    buckets=_WORK_S,
)
AUTHORED_WORKFLOWS_FAILED = Counter(
    "everturn_authored_workflows_failed",
    "Workflows of bundles that gave no answer, by reason: raised (an exception), timeout, crashed, empty or long.",
    ["reason"],
)
AUTHORED_HOOKS_FAILED = Counter(
    "everturn_authored_hooks_failed",
    "Hooks of workflows that raised an exception or took too long, by kind: before_round or after_tool.",
    ["kind"],
)
CONVERSATIONS_EXPIRED = Counter(
    "everturn_conversations_expired", "Conversations erased after a period without activity."
)
RETENTION_FAILED = Counter(
    "everturn_retention_failed",
    "Failed retention work, by kind: finding what is due, conversations, their events or objects, rows, orphans.",
    ["kind"],
)
ORPHANS_DELETED = Counter("everturn_orphans_deleted", "Stored objects deleted because no row names them.")
ROWS_EXPIRED = Counter("everturn_rows_expired", "Rows removed because they expired or were too old.", ["table"])
