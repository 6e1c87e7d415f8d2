"""A model server in Anthropic's format that plays what a coding agent is to do, whatever the agent calls its tools."""

import json
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PROJECT = "/workspace/work/project"


def run(command: str) -> dict[str, Any]:
    """A command of the shell."""
    return {"kind": "run", "command": command}


def read(path: str) -> dict[str, Any]:
    """Read a file, as some agents must before they change it."""
    return {"kind": "read", "path": f"{PROJECT}/{path}"}


def change(path: str, before: str, after: str) -> dict[str, Any]:
    """Replace a text in a file."""
    return {"kind": "change", "path": f"{PROJECT}/{path}", "before": before, "after": after}


def _build_call(step: Mapping[str, Any], tools: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The tool and the arguments in the words of the agent that offers these tools."""
    if step["kind"] == "run":
        if "Bash" in tools:
            return "Bash", {"command": step["command"], "description": "Run it"}
        return "bash", {"command": step["command"], "description": "Run it"}
    if step["kind"] == "read":
        return ("Read", {"file_path": step["path"]}) if "Read" in tools else ("read", {"filePath": step["path"]})
    if "Edit" in tools:
        return "Edit", {"file_path": step["path"], "old_string": step["before"], "new_string": step["after"]}
    return "edit", {"filePath": step["path"], "oldString": step["before"], "newString": step["after"]}


class CodingModel:
    """Plays its steps for each session: the next one after as many results as the request has. Then it says `answer`.

    `requests` are the bodies, `keys` the keys that came with them. A request that says `hold` in its last message waits
    until `release` is set.
    """

    def __init__(self, steps: Sequence[Mapping[str, Any]], answer: str) -> None:
        self.steps = steps
        self.answer = answer
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.held_at: int | None = None
        self.is_held = threading.Event()
        self.release = threading.Event()
        self.url = ""

    @property
    def decisions(self) -> list[dict[str, Any]]:
        """The requests that could call a tool."""
        return [request for request in self.requests if request.get("tools")]

    def build_events(self, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        tools = [str(tool["name"]) for tool in request.get("tools", ())]
        parts = [part for message in request["messages"] for part in message["content"] if isinstance(part, dict)]
        done = sum(part.get("type") == "tool_result" for part in parts)
        if tools and done == self.held_at:
            self.is_held.set()
            self.release.wait(60)
        usage = {"input_tokens": 100, "output_tokens": 1}
        message = {"id": f"msg_{done}", "type": "message", "role": "assistant", "model": request["model"]}
        message |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        goes_on = bool(tools) and done < len(self.steps)
        text = "I go on." if goes_on else self.answer
        events: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
        events += _build_block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": text})
        if goes_on:
            name, given = _build_call(self.steps[done], tools)
            block = {"type": "tool_use", "id": f"toolu_{done}", "name": name, "input": {}}
            events += _build_block(1, block, {"type": "input_json_delta", "partial_json": json.dumps(given)})
        ended = {"stop_reason": "tool_use" if goes_on else "end_turn", "stop_sequence": None}
        return [
            *events,
            {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 20}},
            {"type": "message_stop"},
        ]


def _build_block(index: int, block: Mapping[str, Any], delta: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        {"type": "content_block_delta", "index": index, "delta": delta},
        {"type": "content_block_stop", "index": index},
    ]


@contextmanager
def serve_coding_model(model: CodingModel) -> Generator[CodingModel]:
    """At a port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            model.keys.append(self.headers.get("X-Api-Key") or self.headers["Authorization"].removeprefix("Bearer "))
            if self.path.startswith("/v1/messages/count_tokens"):
                self._send("application/json", [b'{"input_tokens": 100}'])
                return
            model.requests.append(request)
            events = model.build_events(request)
            lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]
            self._send("text/event-stream", lines)

        def _send(self, kind: str, pieces: list[bytes]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(sum(map(len, pieces))))
            self.end_headers()
            for piece in pieces:
                self.wfile.write(piece)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    model.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield model
    finally:
        model.release.set()
        server.shutdown()
        server.server_close()
