"""What models do, whatever their prompt says, and what must come of it under each codec. Each row is a turn for each
codec; a section of docs/models.md is made of them."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from chat_proc.agent.kit import TurnLimits
from everturn.events.model import TERMINAL_TYPES, ChatComplete
from everturn.models.port import CodecName, ModelFailed
from everturn.models.tokens import CharsPerToken, estimate_request
from everturn.timeline.blocks import NoticeBody, ToolResultBody
from everturn_testing.models.scripted_model import Call, Fail, Finish, Say, Script, Think
from turn_harness.harness import Bench
from turn_harness.replies import answer, answer_in, call, call_in, cut_answer
from turn_harness.tools import DemoTool

CODECS: tuple[CodecName, ...] = ("channels", "native", "json")
ECHO = "demo.echo"
PARAMS = {"text": "x"}
SUM = "The sum of the two numbers is 4."
HALF = "The sum of the two"
BARE_QUOTES = 'Press the button "Save" first, then close the window.'
QUOTED_CALL = 'Send {"tool": "demo.echo", "args": {"text": "x"}} to the server.'
FIRST = "I will add the two numbers now.\n"
SHOWN_CHARS = 60
SPARE_REPLIES = 4

NATIVE = Call("demo__echo", json.dumps(PARAMS))
ACT, CLOSE = "<channel:action>", "</channel:action>"
CHANNEL_CALL, CHANNEL_ANSWER = call(ECHO, PARAMS), answer(SUM)
JSON_CALL = json.dumps({"action": "tool_call", "tool": ECHO, "args": PARAMS})
JSON_ANSWER = json.dumps({"action": "final_answer", "answer": SUM})
HERMES_CALL = json.dumps({"name": ECHO, "arguments": PARAMS})
FUNCTION_CALL = json.dumps({"type": "function", "function": {"name": "demo__echo", "arguments": json.dumps(PARAMS)}})
TAGGED_CALL = f"<tool_call>\n{HERMES_CALL}\n</tool_call>"
XML_CALL = '<function_calls><invoke name="demo.echo"><parameter name="text">x</parameter></invoke></function_calls>'

DOWN: Script = [Fail(ModelFailed("The connection was reset.", retryable=True))]
BROKE_OFF = Fail(ModelFailed("The connection was reset.", retryable=True, partial=True))
CUT_THINKING: Script = [Think("Two and two, and then "), Finish("length")]
THREE_ROUNDS = TurnLimits(rounds=3)
STEPS = "I could not finish the answer: {why}. This is what I did:\n\n- demo.echo: done\n- demo.echo: done"

Reply = Script | Callable[[CodecName], Script]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The replies of a model; the further ones are answers in the form of the codec. A reply that has a form of its
    own under each codec is a function.

    `sees` is the answer, or the name of the problem that `ends` the turn with an error. `steps` are the calls that run,
    if another number of them does under a codec, by that codec.
    """

    what: str
    replies: tuple[Reply, ...]
    sees: str = SUM
    ends: str = "completed"
    steps: int = 0
    steps_under: dict[CodecName, int] = field(default_factory=dict[CodecName, int])
    limits: TurnLimits = field(default_factory=TurnLimits)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a behaviour under one codec. Tokens are estimated from the characters of requests and replies."""

    model_calls: int
    output_tokens: int
    input_tokens: int
    notices: tuple[str, ...]
    results: tuple[str, ...]
    ends: str
    sees: str


def calls(codec: CodecName) -> Script:
    return call_in(codec, ECHO, PARAMS)


def answers(codec: CodecName) -> Script:
    return answer_in(codec, SUM)


def _calls_after_prose(codec: CodecName) -> Script:
    return [Say(FIRST), *_steps(calls(codec))]


def _calls_after_thinking(codec: CodecName) -> Script:
    return [Say("<think>Two and two.</think>\n"), *_steps(calls(codec))]


def _answers_and_calls(codec: CodecName) -> Script:
    if codec == "json":
        return json.dumps({"action": "tool_call", "tool": ECHO, "args": PARAMS, "answer": SUM})
    return [Say(CHANNEL_CALL + CHANNEL_ANSWER)] if codec == "channels" else [Say(SUM), NATIVE]


def _write_unescaped(codec: CodecName, text: str) -> Script:
    if codec == "channels":
        return f'{ACT}{{"action": "complete", "final_answer": "{text}"}}{CLOSE}'
    return f'{{"action": "final_answer", "answer": "{text}"}}'


def _breaks_arguments(codec: CodecName) -> Script:
    if codec == "native":
        return [Call("demo__echo", '{"text": "x')]
    text = calls(codec)
    assert isinstance(text, str)
    return text[: text.rindex('"x"') + 2]


def _encodes_arguments_twice(codec: CodecName) -> Script:
    encoded = json.dumps(PARAMS)
    match codec:
        case "channels":
            action = {"action": "call_tool", "tool_call": {"tool_id": ECHO, "params": encoded}}
            return f"{ACT}{json.dumps(action)}{CLOSE}"
        case "native":
            return [Call("demo__echo", json.dumps(encoded))]
        case "json":
            return json.dumps({"action": "tool_call", "tool": ECHO, "args": encoded})


def _begins_answer(codec: CodecName) -> str:
    match codec:
        case "channels":
            return cut_answer(HALF)
        case "native":
            return HALF
        case "json":
            return JSON_ANSWER[: JSON_ANSWER.index(HALF) + len(HALF)]


def _steps(script: Script) -> list[Say | Think | Call]:
    steps = [Say(script)] if isinstance(script, str) else script
    return [step for step in steps if isinstance(step, Say | Think | Call)]


TABLE = (
    Behaviour("answers in prose", (SUM,)),
    Behaviour("answers with one word", ("4",), sees="4"),
    Behaviour("writes prose before a call", (_calls_after_prose, answers), steps=1),
    Behaviour("calls natively, then answers as its prompt says", ([NATIVE], answers), steps=1),
    Behaviour("calls natively three times side by side", ([NATIVE] * 3, SUM), steps=3),
    Behaviour("leaves a call in the text as `<tool_call>`", (TAGGED_CALL, answers), steps=1),
    Behaviour("writes prose and then `<tool_call>`", (FIRST + TAGGED_CALL, answers), steps=1),
    Behaviour("writes a call in Hermes' JSON", (HERMES_CALL, answers), steps=1),
    Behaviour("writes a call in Hermes' JSON in a fence", (f"```json\n{HERMES_CALL}\n```", answers), steps=1),
    Behaviour("writes a call in OpenAI's JSON", (FUNCTION_CALL, answers), steps=1),
    Behaviour("writes a call as `<invoke>`", (XML_CALL, answers)),
    Behaviour("replies as under `channels`", (CHANNEL_CALL, CHANNEL_ANSWER), steps=1),
    Behaviour(
        "thinks and replies as under `channels`",
        (call(ECHO, PARAMS, thinking="Two and two."), answer(SUM, thinking="It is 4.")),
        steps=1,
    ),
    Behaviour("writes prose before an action channel", (FIRST + CHANNEL_CALL, CHANNEL_ANSWER), steps=1),
    Behaviour("writes two action channels", (CHANNEL_CALL * 2, CHANNEL_ANSWER), steps=2, steps_under={"channels": 0}),
    Behaviour("answers in an answer channel", (f"<channel:answer>{SUM}</channel:answer>",)),
    Behaviour(
        "thinks in a channel and answers outside of any", (f"<channel:thinking>It is 4.</channel:thinking>\n{SUM}",)
    ),
    Behaviour("ends its answer with a stray tag", (f"{SUM}</channel:answer>",)),
    Behaviour("begins its answer with a stray tag", (f"</channel:thinking>\n{SUM}",)),
    Behaviour(
        "names tags in its answer",
        ("Models write `<tool_call>` or `<channel:x>`.",),
        sees="Models write `<tool_call>` or `<channel:x>`.",
    ),
    Behaviour("replies as under `json`", (JSON_CALL, JSON_ANSWER), steps=1),
    Behaviour(
        "replies as under `json`, in a fence", (f"```json\n{JSON_CALL}\n```", f"```json\n{JSON_ANSWER}\n```"), steps=1
    ),
    Behaviour("replies as under `json`, after prose", (FIRST + JSON_CALL, f"I have it now:\n{JSON_ANSWER}"), steps=1),
    Behaviour(
        "replies as under `json`, after prose and in a fence",
        (f"{FIRST}```json\n{JSON_CALL}\n```", f"I have it now:\n```json\n{JSON_ANSWER}\n```"),
        steps=1,
    ),
    Behaviour(
        "writes the action of a channel without its tags",
        (CHANNEL_CALL.removeprefix(ACT).removesuffix(CLOSE), CHANNEL_ANSWER.removeprefix(ACT).removesuffix(CLOSE)),
        steps=1,
    ),
    Behaviour(
        "replies as under `json`, in a channel",
        (f"{ACT}{JSON_CALL}{CLOSE}", f"{ACT}{JSON_ANSWER}{CLOSE}"),
        steps=1,
    ),
    Behaviour(
        "replies in LangChain's JSON",
        (
            json.dumps({"action": ECHO, "action_input": PARAMS}),
            json.dumps({"action": "Final Answer", "action_input": SUM}),
        ),
        steps=1,
    ),
    Behaviour(
        "does not escape quotes in its answer in JSON", (lambda codec: _write_unescaped(codec, BARE_QUOTES), answers)
    ),
    Behaviour(
        "does not escape quotes in its answer in JSON, forever",
        (lambda codec: _write_unescaped(codec, BARE_QUOTES),) * 4,
        BARE_QUOTES,
        "capped",
    ),
    Behaviour(
        "quotes a call in its answer in JSON, unescaped",
        (lambda codec: _write_unescaped(codec, QUOTED_CALL), answers),
    ),
    Behaviour("writes the same answer under two keys", (f'{JSON_ANSWER[:-1]}, "final_answer": "{SUM}"}}',)),
    Behaviour("answers in JSON and then calls in JSON", (f"{JSON_ANSWER}\n{JSON_CALL}",)),
    Behaviour(
        "calls in JSON and then answers in JSON",
        (f"{JSON_CALL}\n{JSON_ANSWER}", answers),
        steps=1,
        steps_under={"channels": 0},
    ),
    Behaviour("makes two calls in JSON", (f"{JSON_CALL}\n{JSON_CALL}", answers), steps=2, steps_under={"channels": 0}),
    Behaviour("breaks off in the arguments of a call", (_breaks_arguments, calls, answers), steps=1),
    Behaviour("encodes the arguments of a call twice", (_encodes_arguments_twice, answers), steps=1),
    Behaviour("calls an unknown tool", (lambda codec: call_in(codec, "demo.none", PARAMS), calls, answers), steps=1),
    Behaviour(
        "gives an unknown parameter",
        (lambda codec: call_in(codec, ECHO, {**PARAMS, "loud": True}), calls, answers),
        steps=1,
    ),
    Behaviour("answers and calls in one reply", (_answers_and_calls, answers), steps=1, steps_under={"channels": 0}),
    Behaviour("thinks in `<think>`, then answers", (f"<think>Two and two.</think>\n\n{SUM}",)),
    Behaviour("thinks in `<think>` without its opening tag, then answers", (f"Two and two.</think>\n\n{SUM}",)),
    Behaviour("thinks in `<think>`, then calls", (_calls_after_thinking, answers), steps=1),
    Behaviour("returns an empty reply", ("", answers)),
    Behaviour("reasons and then returns an empty reply", ([Think("It is 4.")], answers)),
    Behaviour("only reasons, forever", ([Think("It is 4.")],) * 4, "no-closing-answer", "error"),
    Behaviour("is cut off in its reasoning, forever", (CUT_THINKING,) * 4, "output-limit", "error"),
    Behaviour(
        "is cut off in its reasoning after two steps, forever",
        (calls, calls, *(CUT_THINKING,) * 4),
        STEPS.format(why="I reached the output limit of one reply 3 times in a row"),
        "capped",
        steps=2,
    ),
    Behaviour("is cut off in its answer", (lambda codec: [Say(_begins_answer(codec)), Finish("length")],), HALF, "cut"),
    Behaviour("refuses", ([Finish("refusal")],), "model-refused", "error"),
    Behaviour(
        "refuses in words", ([Say("I can't help with that."), Finish("refusal")],), "I can't help with that.", "cut"
    ),
    Behaviour("is stopped by a content filter", ([Finish("content_filter")],), "content-filtered", "error"),
    Behaviour(
        "is stopped by a content filter in its answer",
        (lambda codec: [Say(_begins_answer(codec)), Finish("content_filter")],),
        HALF,
        "cut",
    ),
    Behaviour("is unreachable", (DOWN,), "model-unavailable", "error"),
    Behaviour(
        "fails in its answer, forever", (lambda codec: [Say(_begins_answer(codec)), BROKE_OFF],) * 3, HALF, "cut"
    ),
    Behaviour("fails in its answer once", (lambda codec: [Say(_begins_answer(codec)), BROKE_OFF], answers)),
    Behaviour(
        "fails after two steps",
        (calls, calls, DOWN),
        STEPS.format(why="the model stopped answering"),
        "cut",
        steps=2,
    ),
    Behaviour(
        "repeats a call until its rounds are used up",
        (calls, calls, calls, answers),
        ends="capped",
        steps=2,
        limits=THREE_ROUNDS,
    ),
    Behaviour(
        "calls in the closing call too",
        (calls,) * 4,
        STEPS.format(why="I reached the limit of 3 rounds"),
        "capped",
        steps=2,
        limits=THREE_ROUNDS,
    ),
    Behaviour(
        "fails in the closing call",
        (calls, calls, calls, DOWN),
        STEPS.format(why="I reached the limit of 3 rounds"),
        "capped",
        steps=2,
        limits=THREE_ROUNDS,
    ),
    Behaviour(
        "replies as under `channels` to the closing call",
        (calls, calls, calls, CHANNEL_ANSWER),
        ends="capped",
        steps=2,
        limits=THREE_ROUNDS,
    ),
    Behaviour(
        "replies as under `json` to the closing call",
        (calls, calls, calls, JSON_ANSWER),
        ends="capped",
        steps=2,
        limits=THREE_ROUNDS,
    ),
)


async def play(row: Behaviour, codec: CodecName) -> tuple[Bench, Outcome]:
    """The turn of a behaviour under a codec, and what came of it."""
    scripts = [reply(codec) if callable(reply) else reply for reply in row.replies]
    bench = Bench(*scripts, *[answers(codec)] * SPARE_REPLIES, tools=[DemoTool(ECHO)], limits=row.limits, codec=codec)
    await bench.say("Add two and two.")
    await bench.work()
    (end,) = [event.data for event in await bench.published() if event.type in TERMINAL_TYPES]
    bodies, ratio = [block.body for block in bench.blocks], CharsPerToken()
    is_answered = isinstance(end, ChatComplete)
    return bench, Outcome(
        model_calls=len(bench.model.requests),
        output_tokens=sum(
            ratio.tokens_for(sum(map(_count_chars, _steps(script))))
            for script in bench.scripts[: len(bench.model.requests)]
        ),
        input_tokens=sum(estimate_request(request, ratio) for request in bench.model.requests),
        notices=tuple(body.code for body in bodies if isinstance(body, NoticeBody)),
        results=tuple(body.text for body in bodies if isinstance(body, ToolResultBody)),
        ends=end.outcome if is_answered else "error",
        sees=(end.answer or "") if is_answered else end.problem.type.rpartition(":")[2],
    )


def has_text(row: Behaviour) -> bool:
    """Whether the model writes anything that a person could read."""
    scripts = [reply(codec) if callable(reply) else reply for reply in row.replies for codec in CODECS]
    return any(isinstance(step, Say) and step.text.strip() for script in scripts for step in _steps(script))


def _count_chars(step: Say | Think | Call) -> int:
    return len(step.name) + len(step.arguments) if isinstance(step, Call) else len(step.text)


def render_row(row: Behaviour, outcomes: Mapping[CodecName, Outcome]) -> str:
    """The line of a behaviour in the document; what differs between the codecs is listed by codec."""
    sees = json.dumps(row.sees[:SHOWN_CHARS], ensure_ascii=False)[1:-1]
    cells = (
        row.what,
        _merge({codec: str(outcome.model_calls) for codec, outcome in outcomes.items()}),
        *(f"{outcome.output_tokens} / {outcome.input_tokens}" for outcome in outcomes.values()),
        _merge({codec: _count(outcome.notices) for codec, outcome in outcomes.items()}),
        _merge({codec: str(len(outcome.results)) for codec, outcome in outcomes.items()}),
        row.ends,
        f"`` {sees}{'...' if len(row.sees) > SHOWN_CHARS else ''} ``",
    )
    return f"| {' | '.join(cells)} |"


def _merge(cells: Mapping[CodecName, str]) -> str:
    if len(set(cells.values())) == 1:
        return cells["channels"]
    return ", ".join(f"{codec}: {cell}" for codec, cell in cells.items() if cell)


def _count(notices: Sequence[str]) -> str:
    return ", ".join(f"`{code}`{f' {n} times' if n > 1 else ''}" for code, n in Counter(notices).items())
