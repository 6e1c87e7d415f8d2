"""The tasks with which a model is checked: what it is asked, what it is offered, and how its reply is judged.

They are conversations with an operator's tool and two of our own, built from blocks as a worker would write them. No
tool is run: a check shows only whether a model understands what it is asked and writes what can be read.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from chat_proc.agent.drafting import Repair, RoundContext, UseTool, Verdict, Work, draft_repair, draft_round_start
from chat_proc.catalog.tool import ToolCall, ToolOutcome, ToolRegistry, ToolSpec
from chat_proc.tools.code.run_code import build_code_spec
from chat_proc.tools.workspace.write import WriteParams, build_write_spec
from everturn.core.errors import Invalid
from everturn.core.identity import Principal
from everturn.core.ids import ArtifactId, CallId, ConversationId, TurnId
from everturn.core.refs import call_ref, prompt_ref, result_ref, round_ref
from everturn.files.model import Upload, UploadScope, build_attachments
from everturn.models.port import CodecName, FinishReason
from everturn.timeline.blocks import (
    AttachmentBody,
    BlockDraft,
    BlockType,
    PromptBody,
    ToolCallBody,
    ToolResultBody,
    TurnHeaderBody,
)
from everturn.turns.model import Effect

NOW: Final = "2026-03-02T09:00:00.000Z"
TURN: Final = TurnId("turn_019caf5e-4c00-7000-8000-000000000001")
CALL: Final = CallId("call_019caf5e-4c00-7000-8000-000000000002")
PICTURE: Final = ArtifactId("art_019caf5e-4c00-7000-8000-000000000003")
CONVERSATION: Final = ConversationId("conv_019caf5e-4c00-7000-8000-000000000004")
ROUNDS: Final = 15
MAX_QUOTED_CHARS: Final = 100

PROGRAM: Final = r"""
names = ['a\tb', "C:\\temp", "it's"]
for name in names:
    print(f"{name!r} has {len(name)} characters\n")
print("\"done\"", end='')
""".strip()
DOCUMENT: Final = r"""
# Deploy the shop

Run `make deploy` in **two** steps:

1. Build the image:

   ```bash
   docker build -t "shop:1.2" .
   echo 'C:\temp\new'
   ```

2. Check the *result*:

   | step | expected |
   |---|---|
   | build | `ok` |
   | push | 3 > 2 |

> Then say "ready".
""".strip()
RED_PNG: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAAS0lEQVR42u3PQQkAAAgAsetfWiP4FgYrsKZeS0BAQEBAQEBAQEBAQEBA"
    "QEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEDgsqnc8OJg6Ln3AAAAAElFTkSuQmCC"
)
"""A red square of 64 pixels."""


class OrderParams(BaseModel):
    """The parameters of `orders.find`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    order: int
    with_items: bool


@dataclass(frozen=True, slots=True)
class _OfferedTool:
    """A tool that is only described."""

    spec: ToolSpec

    async def run(self, call: ToolCall) -> ToolOutcome:
        raise AssertionError("The check of a model runs no tools.")


ORDERS: Final = ToolSpec(
    tool_id="orders.find",
    summary="Find one order of the shop by its number.",
    guide='Finds one order. For example, with the parameters `{"order": 12, "with_items": false}` the order 12 without '
    "its items.\n\n- `order`: the number of the order.\n- `with_items`: whether to list its items.",
    params=OrderParams,
    effect=Effect.PURE,
    strategy="exploration",
)
CODE: Final = build_code_spec()
WRITE: Final = build_write_spec()
CATALOG: Final = ToolRegistry([_OfferedTool(spec) for spec in (ORDERS, WRITE, CODE)])


class Wrong(Exception):
    """A reply that is not what its task asks for; the text says why."""


@dataclass(frozen=True, slots=True)
class ReadReply:
    """A whole reply as the agent reads it."""

    verdict: Verdict
    reason: FinishReason
    called_natively: bool = False
    """Whether it has a call in the provider's form, although its codec has another."""

    def read_calls(self) -> tuple[UseTool, ...]:
        """The calls of a reply that only calls tools. Raises Wrong."""
        work = self._read()
        if not work.calls:
            raise Wrong(f"It answered instead of calling a tool: {quote(work.answer.text if work.answer else '')}")
        if work.answer is not None:
            raise Wrong("It called a tool and also answered")
        return work.calls

    def read_answer(self) -> str:
        """The text of a reply that only answers. Raises Wrong."""
        work = self._read()
        if work.calls:
            raise Wrong(f"It called {work.calls[0].spec.tool_id} instead of answering")
        return "" if work.answer is None else work.answer.text

    def _read(self) -> Work:
        match self.verdict:
            case Repair(sentences=sentences):
                native = "It made a native tool call. " if self.called_natively else ""
                raise Wrong(f"The reply can't be used. {native}{sentences}")
            case work if self.called_natively and not work.calls:
                raise Wrong("It made a native tool call")
            case work if work.refused:
                raise Wrong(f"A call can't be used. {work.refused[0].sentences}")
            case work:
                return work


def quote(text: str) -> str:
    """The beginning of a text as a JSON string, so that spaces and backslashes can be distinguished."""
    return json.dumps(text if len(text) <= MAX_QUOTED_CHARS else f"{text[:MAX_QUOTED_CHARS]}...", ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Task:
    """One task. `judge` raises Wrong unless a reply is what was asked for.

    `rounds` are the rounds before the one that is asked for. A model that fails a `required` task can't be used: turns
    would end without what they are for.
    """

    number: int
    name: str
    prompt: str
    judge: Callable[[ReadReply, CodecName], None]
    required: bool = True
    rounds: Callable[[CodecName], Sequence[BlockDraft]] = lambda _: ()
    image: bytes = b""

    def draft_turn(self, codec: CodecName) -> list[BlockDraft]:
        """The blocks of the turn so far."""
        return [*_draft_opening(self.prompt, self.image), *self.rounds(codec)]


def _draft_opening(prompt: str, image: bytes) -> list[BlockDraft]:
    opening = RoundContext(TURN, 0, 0, NOW)
    drafts = [
        opening.draft(BlockType.TURN_HEADER, round_ref(TURN, 0, "header"), TurnHeaderBody(ordinal=1)),
        opening.draft(BlockType.USER_PROMPT, prompt_ref(TURN), PromptBody(text=prompt)),
    ]
    if image:
        sha256, began = hashlib.sha256(image).hexdigest(), datetime.fromisoformat(NOW)
        upload = Upload(PICTURE, "picture.png", "image/png", len(image), sha256, "picture", "not scanned", began)
        [artifact] = build_attachments([upload], UploadScope(Principal("check", "check", "check"), CONVERSATION, TURN))
        drafts.append(opening.draft(BlockType.ATTACHMENT_META, artifact.ref, AttachmentBody(artifact=artifact)))
    return drafts


def _draft_found_order(_codec: CodecName) -> list[BlockDraft]:
    """A round that found an order."""
    context = RoundContext(TURN, 1, ROUNDS, NOW)
    params = OrderParams(order=4711, with_items=False).model_dump()
    found = json.dumps({"order": 4711, "customer": "Marta Lind", "total": "129.40 EUR", "state": "shipped"})
    call = ToolCallBody(tool_id=ORDERS.tool_id, params=params)
    result = ToolResultBody(tool_id=ORDERS.tool_id, status="ok", text=found, duration_ms=12)
    return [
        draft_round_start(context),
        context.draft(BlockType.TOOL_CALL, call_ref(TURN, CALL), call, call_id=CALL),
        context.draft(BlockType.TOOL_RESULT, result_ref(TURN, CALL), result, call_id=CALL),
    ]


def _draft_refused_call(codec: CodecName) -> list[BlockDraft]:
    """A round whose only call has a wrong parameter, in the words of the codec, and the notice about it."""
    context = RoundContext(TURN, 1, ROUNDS, NOW)
    wrong: Mapping[str, Any] = {"order_number": 4711}
    written = {
        "native": wrong,
        "json": {"action": "tool_call", "tool": ORDERS.tool_id, "args": wrong, "reasoning": "I look up the order."},
        "channels": {
            "action": "call_tool",
            "notes": "I look up the order.",
            "tool_call": {"tool_id": ORDERS.tool_id, "params": wrong},
            "final_answer": None,
        },
    }
    raw = json.dumps(written[codec])
    if codec == "channels":
        raw = f"<channel:thinking>I look it up.</channel:thinking>\n<channel:action>{raw}</channel:action>"
    return [draft_round_start(context), *draft_repair(context, Repair("bad_tool_call", _explain(wrong)), raw)]


def _explain(params: Mapping[str, Any]) -> str:
    """How a notice explains these parameters of `orders.find`."""
    try:
        CATALOG.check_params(ORDERS.tool_id, params)
    except Invalid as refused:
        return refused.detail
    raise AssertionError("These parameters must be invalid.")


def _check_answer(pattern: str, expected: str) -> Callable[[ReadReply, CodecName], None]:
    """Accepts an answer that contains a match."""

    def judge(reply: ReadReply, _codec: CodecName) -> None:
        answer = reply.read_answer()
        if not re.search(pattern, answer, re.IGNORECASE | re.DOTALL):
            raise Wrong(f"expected {expected}, but the answer is {quote(answer)}")

    return judge


def _check_sentence(reply: ReadReply, codec: CodecName) -> None:
    _check_answer(r"\bparis\b", "Paris")(reply, codec)
    answer = reply.read_answer().strip()
    if "\n" in answer or re.search(r"[.!?]\s+\w", answer):
        raise Wrong(f"expected one sentence, but the answer is {quote(answer)}")


def _check_order(*, order: int, with_items: bool) -> Callable[[ReadReply, CodecName], None]:
    """Accepts one call with exactly these arguments."""

    def judge(reply: ReadReply, _codec: CodecName) -> None:
        calls = reply.read_calls()
        expected = OrderParams(order=order, with_items=with_items)
        if [call.params for call in calls] != [expected]:
            raise Wrong(f"expected {_describe(ORDERS, expected)}, but it called {_describe_calls(calls)}")

    return judge


def _check_two_orders(reply: ReadReply, codec: CodecName) -> None:
    """Native replies have both calls. Those of the other codecs, which have one action, have at least the first."""
    calls = reply.read_calls()
    expected = [OrderParams(order=order, with_items=False) for order in (1001, 1002)]
    found = [call.params for call in calls]
    if found != expected and (codec == "native" or found != expected[:1]):
        wanted = "both orders" if codec == "native" else "the first order"
        raise Wrong(f"expected calls for {wanted}, but it called {_describe_calls(calls)}")


def _check_program(reply: ReadReply, _codec: CodecName) -> None:
    calls = reply.read_calls()
    if [call.spec.tool_id for call in calls] != [CODE.tool_id]:
        raise Wrong(f"expected {CODE.tool_id}, but it called {_describe_calls(calls)}")
    _check_text(PROGRAM, calls[0].code or "", "the program")


def _check_document(reply: ReadReply, _codec: CodecName) -> None:
    calls = reply.read_calls()
    params = calls[0].params
    if len(calls) > 1 or not isinstance(params, WriteParams):
        raise Wrong(f"expected {WRITE.tool_id}, but it called {_describe_calls(calls)}")
    if params.path != "files/deploy.md":
        raise Wrong(f"expected the path files/deploy.md, but it wrote {quote(params.path)}")
    _check_text(DOCUMENT, params.content if isinstance(params.content, str) else "", "the text")


def _check_text(expected: str, found: str, what: str) -> None:
    """Line ends at the beginning and at the end don't count."""
    expected_lines, found_lines = expected.splitlines(), found.strip("\r\n").splitlines()
    for number, line in enumerate(expected_lines):
        written = found_lines[number] if number < len(found_lines) else ""
        if written != line:
            raise Wrong(f"line {number + 1} of {what} is {quote(written)} instead of {quote(line)}")
    if len(found_lines) > len(expected_lines):
        raise Wrong(f"{what} goes on with {quote(found_lines[len(expected_lines)])}")


def _check_stream(reply: ReadReply, codec: CodecName) -> None:
    _check_answer(r"\bforty\b", "the numbers up to forty")(reply, codec)
    if reply.reason != "stop":
        raise Wrong(f"the reply ended with the finish reason {reply.reason}")


def _describe_calls(calls: Sequence[UseTool]) -> str:
    return ", ".join(_describe(call.spec, call.params) for call in calls)


def _describe(spec: ToolSpec, params: BaseModel) -> str:
    if spec is not ORDERS:
        return spec.tool_id
    return f"{spec.tool_id}({', '.join(f'{name}={value!r}' for name, value in params.model_dump().items())})"


TASKS: Final = (
    Task(1, "answer in one sentence", "What is the capital of France? Answer in one sentence.", judge=_check_sentence),
    Task(
        2,
        "answer in the language of the question",
        "Wie heißt die Hauptstadt von Italien? Antworte in einem ganzen Satz.",
        judge=_check_answer(r"(?=.*\brom\b)(?=.*\b(ist|heißt|hauptstadt)\b)", "a German sentence with Rom"),
        required=False,
    ),
    Task(
        3,
        "one call with exact arguments",
        "Find the order 4711, and list its items.",
        judge=_check_order(order=4711, with_items=True),
    ),
    Task(
        4,
        "two independent calls",
        "Find the orders 1001 and 1002, both without their items. Neither depends on the other; begin with 1001.",
        judge=_check_two_orders,
        required=False,
    ),
    Task(
        5,
        "answer from the result of a call",
        "What is the total of the order 4711?",
        judge=_check_answer(r"129[.,]40?\b", "the total, 129.40 EUR"),
        rounds=_draft_found_order,
    ),
    Task(
        6,
        "program with quotes and backslashes",
        f"Run this program now without a single change, even if it looks odd. It writes no files.\n\n{PROGRAM}",
        judge=_check_program,
    ),
    Task(
        7,
        "long text with Markdown and code fences",
        "Write a file with `react.write` to `files/deploy.md` in the channel `canvas`. Its content is everything "
        f"after the next empty line. Don't change a single character.\n\n{DOCUMENT}",
        judge=_check_document,
    ),
    Task(
        8,
        "no call where none is needed",
        "Translate 'good morning' into French.",
        judge=_check_answer(r"\bbonjour\b", "bonjour"),
    ),
    Task(
        9,
        "correct call after a notice",
        "Find the order 4711 without its items.",
        judge=_check_order(order=4711, with_items=False),
        rounds=_draft_refused_call,
    ),
    Task(
        11,
        "streaming",
        "Count from one to forty in English words, in one line, separated by commas.",
        judge=_check_stream,
        required=False,
    ),
    Task(
        12,
        "image",
        "What color is the attached picture? Answer with one word.",
        judge=_check_answer(r"\bred\b", "red"),
        required=False,
        image=RED_PNG,
    ),
)
"""Those that are played with each codec. Number 10 is the structured call, which has no codec."""
