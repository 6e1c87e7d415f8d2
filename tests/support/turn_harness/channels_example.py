"""The example of the documents: one streamed call of a model that thinks, answers, suggests and reports what it used.
The names are theirs."""

from typing import Any, Final

from everturn_sdk.channels import ChannelSpec

system_msg: Final = {"role": "system", "content": "You answer in channels."}
user_msg: Final = {"role": "user", "content": "What does the report say?"}
sources_list: Final = [
    {"sid": 1, "title": "Report", "url": "https://one.example/r", "source_type": "web"},
    {"sid": 2, "title": "Streaming", "url": "https://two.example/s", "source_type": "web"},
    {"sid": 3, "title": "Caching", "url": "https://three.example/c", "source_type": "web"},
    {"sid": 4, "title": "Photo", "url": "https://four.example/p.png", "source_type": "web", "mime": "image/png"},
]
channels: Final = [
    ChannelSpec(name="thinking", format="markdown", replace_citations=False, emit_marker="thinking"),
    ChannelSpec(name="answer", format="markdown", replace_citations=True, emit_marker="answer"),
    ChannelSpec(name="followup", format="json", replace_citations=False, emit_marker="followup"),
    ChannelSpec(name="usage", format="json", replace_citations=False, emit_marker="answer"),
]
CALL: Final[dict[str, Any]] = {
    "messages": [system_msg, user_msg],
    "role": "answer.generator.regular",
    "channels": channels,
    "agent": "my.react.agent",
    "artifact_name": "response",
    "sources_list": sources_list,
    "return_full_raw": True,
}
"""The arguments of the call, apart from what serves it and what gets its deltas."""
REPLY: Final = """<channel:thinking>
Let me check the document structure first...
</channel:thinking>
<channel:answer>
Based on the report [[S:1]], the key findings are...
</channel:answer>
<channel:followup>
{"followups": ["Show me the full table", "Compare with last quarter"]}
</channel:followup>
<channel:usage>{"input_tokens": 12, "sids": [1]}</channel:usage>
"""
THOUGHT: Final = "\nLet me check the document structure first...\n"
ANSWER: Final = "\nBased on the report [[S:1]], the key findings are...\n"
SHOWN: Final = "\nBased on the report [Report](https://one.example/r), the key findings are...\n"
FOLLOWUPS: Final = ("Show me the full table", "Compare with last quarter")
USAGE: Final = {"input_tokens": 12, "sids": [1]}
