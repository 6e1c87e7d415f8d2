"""Descriptions and examples of the fields of calls and events for the API document, by name, because a name means the
same everywhere.

A field that needs a text of its own has it where it is declared, or here as `Schema.field`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

_TEXTS_BY_NAME: Final[Mapping[str, str]] = {
    "after": "The event id that the client sent.",
    "after_tokens": "Tokens of the model's input afterwards.",
    "answer": "The answer as the client shows it, in Markdown.",
    "approval_id": "The id of the approval.",
    "approvals": "Approvals of tool calls, oldest first.",
    "archived": "Whether the conversation is archived.",
    "artifact": "The file that the text is written into.",
    "artifact_id": "The file's id; `GET /files/{tenant}/{project}/{artifact_id}` has its bytes.",
    "artifacts": "The files of the turn.",
    "at": "The time, in seconds since 1970.",
    "attachments": "The files that came with it.",
    "attempt": "The number of this attempt, from 1.",
    "author": "Who wrote the block: the person, the agent or the system.",
    "battery": "The result of the escape battery on the sandbox.",
    "before_tokens": "Tokens of the model's input before.",
    "blocks": "Blocks of the timeline.",
    "blocks_count": "How many blocks the turn has.",
    "body": "What the block holds, by its type.",
    "bundle_id": "The agent that answers; without it, the server's default.",
    "cache": "Whether the provider may keep the segment in its cache.",
    "cache_point": "Whether the cached beginning of the input ends here.",
    "cache_read_tokens": "Tokens of the input that came from the provider's cache.",
    "call_id": "The id of the tool call.",
    "call_ref": "The reference of the tool call in the timeline.",
    "channel": "What the text is: thinking, a note, a file that is written, or the answer.",
    "chars": "Its length in characters.",
    "citations": "The sources that the answer cites, by number.",
    "cleared": "Whether the feedback was removed.",
    "closed_ts": "When it was closed, in ISO 8601 and UTC.",
    "code": "The beginning of the program that was run.",
    "code_chars": "The length of the whole program in characters.",
    "code_ref": "The reference of the whole program.",
    "completed": "Whether the text is complete.",
    "confidence": "The confidence of the feedback or memory, from 0 to 1.",
    "conv.timeline.v1": "The conversation's timeline.",
    "conversation": "The conversation itself.",
    "conversation_id": "The conversation's id.",
    "conversation_started_at": "When the conversation began, in ISO 8601 and UTC.",
    "conversation_title": "The conversation's title.",
    "conversations": "How many conversations were counted.",
    "cost_known": "Whether the prices of all calls are known. Otherwise `cost_usd` is too low.",
    "cost_usd": "What the model calls cost, in US dollars.",
    "created_at": "When it was created, in ISO 8601 and UTC.",
    "current": "Whether it is the one that is followed now.",
    "cursor": "The id of the last event that is included. Streams continue after it.",
    "cut": "Whether more was left out because it is too long.",
    "cut_reason": "Why the answer stops before its end; absent when it does not.",
    "data": "The event's own fields, by its type.",
    "data_base64": "The bytes in base64.",
    "detail": "What was wrong, in a sentence.",
    "duration_ms": "How long it took, in milliseconds.",
    "elapsed_ms": "From the start of the turn to its end, in milliseconds.",
    "end_ts": "When it ended, in ISO 8601 and UTC.",
    "ended_at": "When it ended, in ISO 8601 and UTC.",
    "error": "What went wrong; absent when nothing did.",
    "errors": "The fields that are wrong, with a message for each.",
    "event": "The external event.",
    "events": "External events, as the turn saw them.",
    "events_url": "Where the events of the conversation are streamed.",
    "expires_at": "When it expires, in ISO 8601 and UTC.",
    "explanation": "Why the call needs approval.",
    "favicon_url": "The address of the site's icon.",
    "feedback": "Feedback on the turn.",
    "file_notices": "A sentence for each file that was changed before it was stored.",
    "filename": "The name of the file.",
    "files": "The files that the agent made.",
    "first_seq": "The number of its first block.",
    "followups": "Questions that the person may ask next.",
    "forgotten": "How many memories were deleted.",
    "forked_from": "The conversation that was copied.",
    "form": "The form in which the blocks are shown: whole, shortened or summarized.",
    "format": "The format of the text.",
    "from": "The beginning of the period, included, in ISO 8601 with its zone.",
    "hash": "The block's hash, which covers the hash of the block before.",
    "held": "How many attempts were denied.",
    "hint": "A short description of its content.",
    "id": "The event's id, to continue after it; absent for what is not kept.",
    "index": "Its place, from 0.",
    "input_tokens": "Tokens that the model read.",
    "instance": "The number of the text among those of its channel and round.",
    "items": "What was found, in order.",
    "iteration_credit": "How many rounds the event adds to the turn.",
    "kind": "Its kind.",
    "label": "What the step is about.",
    "labels": "The labels that it is filed under.",
    "last_activity_at": "When something last happened in it, in ISO 8601 and UTC.",
    "last_judged_at": "When feedback was last given, in ISO 8601 and UTC.",
    "last_seq": "The number of its last block.",
    "last_turn_id": "The turn that changed it last.",
    "limit": "The maximum number.",
    "log": "The end of what the program printed.",
    "machine": "Feedback from machines.",
    "machine_confidence": "The mean confidence of machine feedback, from 0 to 1.",
    "marker": "Which part of its channel the text belongs to.",
    "max_attempts": "The maximum number of attempts.",
    "max_output_tokens": "How many tokens the model may write.",
    "memory_id": "The id of what is remembered.",
    "messages": "The messages of the turn.",
    "mime": "The MIME type of the file.",
    "model": "The model that was called.",
    "more": "Whether there is more than is listed.",
    "n": "Its number, from 1.",
    "neutral": "How many were neutral.",
    "next_cursor": "The `cursor` of the next page; absent at the end.",
    "not_ok": "How many were bad.",
    "note": "What the reader should know about it.",
    "notes": "Notes that the agent made.",
    "objective_relevance": "How well the source fits the question, from 0 to 1.",
    "objects": "How many stored files were deleted.",
    "objects_left": "How many stored files could not be deleted yet; the server tries again.",
    "ok": "Whether it responds.",
    "oldest": "The oldest event id that is still available.",
    "ordinal": "The number of the turn in its conversation, from 1.",
    "origin": "Whether the feedback came from a person or a machine.",
    "origin_turn_id": "The turn that it comes from.",
    "outcome": "How the turn ended; absent while it is open or when it failed.",
    "output_tokens": "Tokens that the model wrote.",
    "params": "The parameters of the call.",
    "parts": "Each component that the server needs, by name.",
    "path": "Its reference in the timeline.",
    "payload": "What the event carries besides its text.",
    "phase": "What the turn waits for.",
    "pinned": "Whether it is always shown to the model.",
    "plan": "The plan as it is now.",
    "plan_id": "The id of the plan.",
    "plans": "The plans of the turn.",
    "position": "How many turns are ahead.",
    "position_more": "Whether more than `position` turns are ahead.",
    "problem": "What went wrong.",
    "promoted_to": "The turn that it became.",
    "published_time_iso": "When the source was published.",
    "query": "What to look for.",
    "reaction": "The rating.",
    "reactive": "Whether the event wakes the agent.",
    "reason": "Why.",
    "receipt": "How far it has been processed.",
    "ref": "Its reference in the timeline.",
    "result": "The whole result of the call.",
    "result_preview": "The beginning of the result.",
    "result_ref": "The reference of the result.",
    "retry_in_ms": "When the next attempt begins, in milliseconds from now.",
    "retry_ms": "How long to wait before connecting again, in milliseconds.",
    "rn": "The resource name of the file.",
    "round": "The round of the turn that it belongs to, from 1; 0 is before the first.",
    "rounds": "How many rounds the turn had.",
    "rows": "How many rows were deleted, by table.",
    "salience": "How important it is, from 0 to 1.",
    "sandbox": "How the worker runs programs; empty where it runs none.",
    "satisfaction": "The share of good ratings among all ratings by people; absent without any.",
    "scope": "Whose conversations are counted.",
    "score": "Orders the hits of one search and has no other meaning.",
    "sealed_round": "The last round whose texts are committed.",
    "segments": "The parts of the model's input, in order.",
    "sent_at": "When it was sent, in ISO 8601 and UTC.",
    "seq": "The number of the block in its conversation, from 1.",
    "sha256": "The SHA-256 of its bytes, in hexadecimal.",
    "sid": "The number that answers cite the source by.",
    "signal": "The signal.",
    "signal_id": "The signal's id.",
    "signals": "Signals that were sent to the turn, with their states.",
    "size": "Its size in bytes.",
    "slots": "How many turns it runs at once.",
    "snapshot_ref": "The reference of this state of the plan.",
    "snippet": "The part of the text that was found.",
    "source": "Where the file comes from.",
    "source_type": "What kind of source it is.",
    "sources": "The sources, by number.",
    "sources_pool": "All sources of the conversation.",
    "sources_used": "The numbers of the sources that were used.",
    "started_at": "When it started, in ISO 8601 and UTC.",
    "state": "Its state.",
    "status": "Its state.",
    "step": "The id of the step.",
    "steps": "The steps, in order.",
    "summaries": "Summaries of older parts.",
    "superseded_ts": "When another plan replaced it, in ISO 8601 and UTC.",
    "target": "The kind of text.",
    "targets": "The kinds of texts to search; all if absent.",
    "text": "The text.",
    "text_chars": "The length of its text in characters.",
    "texts": "What the agent wrote, in order.",
    "ticket": "The ticket; pass it as `ticket` in the address of the event stream.",
    "title": "The title.",
    "to": "The end of the period, not included, in ISO 8601 with its zone.",
    "token": "The bearer token.",
    "tokens": "The estimated number of tokens.",
    "tool_id": "The tool that is called.",
    "tools": "The tool calls of the turn.",
    "total": "How many attempts there were.",
    "ts": "When it was, in ISO 8601 and UTC.",
    "ts_first": "When its first part was written, in ISO 8601 and UTC.",
    "turn": "The turn as it is now.",
    "turn.log": "The log of the turn.",
    "turn_id": "The turn's id.",
    "turn_ids": "The turns' ids.",
    "turns": "The turns.",
    "type": "Its type.",
    "unrated": "How many have no feedback.",
    "updated_at": "When it was last changed, in ISO 8601 and UTC.",
    "url": "The address.",
    "usage": "Tokens and cost of the model calls.",
    "used": "Whether the answer used the source.",
    "user": "Feedback from people.",
    "user_id": "The user's id.",
    "verdict": "The result of the antivirus scan.",
    "version": "The version of the format.",
    "visibility": "Whether the person sees the file, or only the agent.",
    "waited_ms": "How long it has waited, in milliseconds.",
    "workers": "The live workers.",
}
_BY_PLACE: Final[Mapping[str, str]] = {
    "CountsOut.ok": "How many were good.",
    "FetchIn.cursor": "The `next_cursor` of the previous page, for older turns.",
    "TurnsIn.cursor": "The `next_cursor` of the previous page, for older turns.",
    "ForkOut.blocks": "How many blocks were copied.",
    "ForkOut.turns": "How many turns were copied.",
    "JudgedOut.turns": "How many turns were counted.",
    "PartOut.detail": "What is wrong; empty if nothing is.",
    "Problem.instance": "What the problem is about.",
    "Problem.status": "The HTTP status.",
    "Problem.title": "What went wrong, in a few words.",
    "Problem.type": "What went wrong, as a stable URN.",
    "SegmentOut.origin": "What the segment consists of.",
    "SummaryOut.turns": "How many turns were counted.",
    "TurnView.text": "What the person wrote.",
    "TurnOut.text": "What the person wrote.",
}


def describe_fields(schemas: Mapping[str, dict[str, Any]]) -> None:
    """Add a description to every field of these JSON Schemas that has none."""
    for name, schema in schemas.items():
        for field, about in schema.get("properties", {}).items():
            text = _BY_PLACE.get(f"{name}.{field}") or _TEXTS_BY_NAME.get(field)
            if text and not about.get("description"):
                about["description"] = text


# Examples for the OpenAPI document, built from its schemas where none is written by hand.

JSON = "application/json"
MAX_DEPTH = 12
_UUID = "01890a5d-ac96-774b-bcce-b302099a8057"
_EXAMPLES_BY_NAME: dict[str, Any] = {
    "conversation_id": f"conv_{_UUID}",
    "turn_id": f"turn_{_UUID}",
    "signal_id": f"sig_{_UUID}",
    "artifact_id": f"art_{_UUID}",
    "plan_id": f"plan_{_UUID}",
    "call_id": f"call_{_UUID}",
    "cursor": "3-17",
    "user_id": "ann",
    "title": "Sales by region",
    "text": "What is the total by region?",
    "sha256": "0" * 64,
}
_MOMENTS = ("ts", "_at", "_ts")
_PLAIN: dict[str, Any] = {"string": "text", "integer": 1, "number": 0.5, "boolean": False, "null": None}

Schema = Mapping[str, Any]


def add_examples(document: dict[str, Any]) -> None:
    """Add an example to every JSON body of a request and of a successful response."""
    schemas = cast(dict[str, Schema], document["components"]["schemas"])
    for operation in _operations(document):
        for content in _json_contents(operation):
            if "example" not in content and "examples" not in content and "schema" in content:
                content["example"] = build_example(content["schema"], schemas)


def build_example(schema: Schema, schemas: Mapping[str, Schema], *, name: str = "", depth: int = 0) -> Any:
    """Build a value that matches the schema; `name` is the field's name, which often says more than its type."""
    if depth > MAX_DEPTH:
        return None
    if "$ref" in schema:
        target = schemas[str(schema["$ref"]).rpartition("/")[2]]
        return build_example(target, schemas, name=name, depth=depth + 1)
    if schema.get("examples"):
        return schema["examples"][0]
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    for union in ("anyOf", "oneOf", "allOf"):
        if union in schema:
            return build_example(_choose(schema[union]), schemas, name=name, depth=depth + 1)
    match schema.get("type"):
        case "object":
            return _build_object(schema, schemas, depth)
        case "array":
            return [build_example(schema["items"], schemas, depth=depth + 1)] if "items" in schema else []
        case kind:
            return _build_plain(schema, str(kind), name)


def _build_object(schema: Schema, schemas: Mapping[str, Schema], depth: int) -> dict[str, Any]:
    """Build an object with the required fields and those with examples."""
    fields = cast(Mapping[str, Schema], schema.get("properties", {}))
    required = set(schema.get("required", ()))
    shown = {name: field for name, field in fields.items() if name in required or field.get("examples")}
    return {name: build_example(field, schemas, name=name, depth=depth + 1) for name, field in shown.items()}


def _build_plain(schema: Schema, kind: str, name: str) -> Any:
    if kind == "string":
        if schema.get("format") == "date-time" or name.endswith(_MOMENTS):
            return "2026-03-01T12:00:00.000Z"
        return _EXAMPLES_BY_NAME.get(name, _PLAIN["string"])
    if kind in ("integer", "number"):
        return schema.get("minimum", _PLAIN[kind])
    return _PLAIN.get(kind)


def _choose(options: list[Schema]) -> Schema:
    return next((each for each in options if each.get("type") != "null"), options[0])


def _operations(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for item in document["paths"].values():
        yield from (operation for operation in item.values() if isinstance(operation, dict))


def _json_contents(operation: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    bodies = [operation.get("requestBody", {})]
    bodies += [answer for status, answer in operation["responses"].items() if status.startswith("2")]
    for body in bodies:
        content = body.get("content", {})
        if JSON in content:
            yield content[JSON]
