"""Everturn as an MCP server: streamable HTTP without sessions, for protocol versions up to 2026-07-28."""

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

import structlog
from fastapi import APIRouter, Request, Response
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    CallToolRequestParams,
    CallToolResult,
    ErrorData,
    JSONRPCError,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
)
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from everturn import __version__
from everturn.core.errors import EverturnError
from everturn.core.metrics import PROBLEMS
from ingress.admission.route import AdmittedRoute
from ingress.auth.gate import CallerOf
from ingress.errors import ProblemError, translate_error
from ingress.mcp.tools import Call, list_tools, run_tool

_log = structlog.get_logger(__name__)
logging.getLogger("mcp").setLevel(logging.WARNING)

MAX_BODY_BYTES: Final = 512 * 1024
"""The SDK parses a body on the event loop: 3 ms for a text of this size."""
INSTRUCTIONS: Final = (
    "Everturn runs AI agents that search, write files and run programs. Ask one with ask_agent; it may take minutes. "
    "Conversations, files and searches are those of the person whose credential is used."
)


class McpRoute(AdmittedRoute):
    """The same admission as for all requests; refusals are JSON-RPC errors with the problem as their data."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except (HTTPException, EverturnError) as error:
                return _refuse(_read_problem(error))

        return answer

    def max_body_bytes_of(self, request: Request) -> int:
        return MAX_BODY_BYTES


router = APIRouter(prefix="/mcp", route_class=McpRoute, tags=["mcp"])


@router.post("/{tenant}/{project}", include_in_schema=False)
async def post_message(request: Request, caller: CallerOf) -> Response:
    """One message of the protocol."""
    # This refuses a body with so many values that parsing it in the SDK would block the event loop.
    await request.json()
    return _McpResponse(caller, await request.body())


class _McpResponse(Response):
    """Lets the SDK answer a request whose body was read within the limits of this server."""

    def __init__(self, caller: Any, body: bytes) -> None:
        super().__init__()
        self._caller = caller
        self._request_body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_read = False

        async def replay() -> Message:
            nonlocal is_read
            if is_read:
                return await receive()
            is_read = True
            return {"type": "http.request", "body": self._request_body, "more_body": False}

        # One for each request: without sessions it keeps nothing between them.
        manager = StreamableHTTPSessionManager(_SERVER, stateless=True, max_request_body_size=MAX_BODY_BYTES + 1)
        scope[_CALLER] = self._caller
        async with manager.run():
            await manager.handle_request(scope, replay, send)


async def _list_tools(_: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(tools=list(list_tools().values()))


async def _call_tool(context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
    request = cast(Request, context.request)
    steps = 0

    async def report(line: str) -> None:
        nonlocal steps
        steps += 1
        await context.session.report_progress(steps, None, line)

    try:
        result = await run_tool(params.name, params.arguments or {}, Call(request, request.scope[_CALLER], report))
    except (HTTPException, EverturnError) as error:
        return _build_failure(_read_problem(error))
    if result is None:
        raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name[:80]!a}")
    return result


_CALLER: Final = "everturn.mcp_caller"
_SERVER: Final = Server[Any](
    "everturn",
    version=__version__,
    title="Everturn",
    instructions=INSTRUCTIONS,
    get_tool_input_schema=lambda name: tool.input_schema if (tool := list_tools().get(name)) else None,
    on_list_tools=_list_tools,
    on_call_tool=_call_tool,
)


def _read_problem(error: HTTPException | EverturnError) -> ProblemError:
    if isinstance(error, ProblemError):
        problem = error
    elif isinstance(error, EverturnError) and (translated := translate_error(error)) is not None:
        problem = translated
    else:
        raise error
    PROBLEMS.labels(kind=problem.kind, status=str(problem.answer.status)).inc()
    return problem


def _build_failure(problem: ProblemError) -> CallToolResult:
    """A refusal that the calling model can read: what was wrong, and when to try again."""
    answer = problem.answer
    retry = (problem.headers or {}).get("Retry-After")
    wait = f" Try again in {retry} s." if retry else ""
    fields = "".join(f" {error['field']}: {error['message']}." for error in problem.errors)
    text = f"{answer.title} ({answer.status}). {answer.detail}{fields}{wait}".strip()
    return CallToolResult(content=[TextContent(text=text)], structured_content=problem.build_body(), is_error=True)


def _refuse(problem: ProblemError) -> Response:
    answer = problem.answer
    error = ErrorData(code=INVALID_REQUEST, message=answer.detail or answer.title, data=problem.build_body())
    body = JSONRPCError(jsonrpc="2.0", id=None, error=error).model_dump_json(by_alias=True)
    return Response(body, answer.status, headers=dict(problem.headers or {}), media_type="application/json")
