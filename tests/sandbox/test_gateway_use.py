"""The gateway as programs use and abuse it, on the real sandbox: what is granted works, abuse costs the connection."""

import asyncio

from everturn.core.errors import Unavailable
from everturn.execution.messages import ArgumentRule, Capability, GatewayCall, ToolGrant, ToolReply

ONE_TOOL = Capability((ToolGrant("web_tools.web_search"),), max_calls=5)

RAW = """
import socket, struct, json
from everturn.execution.framing import encode_frame, FrameDecoder
def connect():
    s = socket.socket(socket.AF_UNIX); s.settimeout(8); s.connect("/run/everturn/gateway.sock"); return s
def hello(nonce=None):
    s = connect()
    s.sendall(encode_frame({"kind": "hello", "nonce": nonce or web_tools._call.__self__._nonce}))
    answer(s)
    return s
def answer(s):
    decoder = FrameDecoder()
    while True:
        data = s.recv(65536)
        frames = decoder.feed(data)
        if frames: return frames[0]
        if not data: return "closed"
def ask(s, number, tool="web_tools.web_search", **arguments):
    s.sendall(encode_frame({"kind": "call", "id": number, "tool_id": tool, "arguments": arguments}))
    return answer(s)
def cut(s):
    try: return answer(s) == "closed"
    except OSError: return True
"""


async def echo(call: GatewayCall) -> ToolReply:
    return ToolReply(call.id, True, {"tool": call.tool_id, **call.arguments})


async def test_a_granted_tool_answers_and_the_call_is_in_the_record(run):
    program = "print(await web_tools.web_search(query='x', raw=b'\\x00\\xff'))"

    result = await run(program, capability=ONE_TOOL, call_tool=echo)

    assert result.ok, result.report_text
    assert result.user_out_tail == "{'tool': 'web_tools.web_search', 'query': 'x', 'raw': b'\\x00\\xff'}\n"
    [record] = result.record.calls
    assert (record.tool_id, record.ok, len(record.arguments_sha256)) == ("web_tools.web_search", True, 64)


async def test_calls_run_side_by_side(run):
    arrived = 0
    both = asyncio.Event()

    async def meet(call: GatewayCall) -> ToolReply:
        nonlocal arrived
        arrived += 1
        if arrived == 2:
            both.set()
        await both.wait()
        return ToolReply(call.id, True, call.arguments["n"])

    program = "import asyncio\nprint(await asyncio.gather(web_tools.web_search(n=1), web_tools.web_search(n=2)))"

    result = await run(program, capability=ONE_TOOL, call_tool=meet)

    assert result.user_out_tail == "[1, 2]\n"


async def test_a_failing_tool_is_an_exception_the_program_can_catch(run):
    async def fail(call: GatewayCall) -> ToolReply:
        raise Unavailable("the search is down")

    program = "try: await web_tools.web_search()\nexcept Exception as e: print(type(e).__name__, e.code, e)"

    result = await run(program, capability=ONE_TOOL, call_tool=fail)

    assert result.ok, result.report_text
    assert "ToolError tool_error" in result.user_out_tail
    assert "the search is down" in result.user_out_tail


async def test_a_result_too_large_for_a_frame_is_an_error(run):
    async def huge(call: GatewayCall) -> ToolReply:
        return ToolReply(call.id, True, "x" * (3 << 20))

    program = "try: await web_tools.web_search()\nexcept Exception as e: print(e.code)"

    result = await run(program, capability=ONE_TOOL, call_tool=huge)

    assert result.user_out_tail == "too_large\n"


async def test_what_is_not_granted_is_refused_and_counted(run):
    capability = Capability((ToolGrant("web_tools.web_search", (ArgumentRule("query", max_chars=3),)),))
    program = (
        RAW
        + """
s = hello()
print(ask(s, 1, "web_tools._private")["error_code"], ask(s, 2, "io_tools.write")["error_code"])
print(ask(s, 3, query="toolong")["error_code"], ask(s, 4, other="x")["error_code"], ask(s, 5, query="abc")["ok"])
try: web_tools.delete_all
except AttributeError as e: print("no attribute")
"""
    )

    result = await run(program, capability=capability, call_tool=echo)

    assert result.user_out_tail == "not_allowed not_allowed\nbad_arguments bad_arguments True\nno attribute\n"
    assert result.record.refusals == {"not_allowed": 2, "bad_arguments": 2}
    assert "not_allowed" in result.report_text


async def test_calls_and_bytes_beyond_the_quota_are_refused(run):
    few_bytes = Capability((ToolGrant("web_tools.web_search"),), max_bytes=1000)
    count = RAW + "s = hello()\nprint([ask(s, n).get('error_code') for n in range(7)])"
    size = RAW + "s = hello()\nprint([ask(s, n, q='x' * 300).get('error_code') for n in range(3)])"

    counted = await run(count, capability=ONE_TOOL, call_tool=echo)
    sized = await run(size, capability=few_bytes, call_tool=echo)

    assert counted.user_out_tail == "['', '', '', '', '', 'quota_calls', 'quota_calls']\n"
    assert len(counted.record.calls) == 5
    assert sized.user_out_tail == "['', 'quota_bytes', 'quota_bytes']\n"


async def test_a_wrong_nonce_closes_the_connection(run):
    program = RAW + "s = connect()\ns.sendall(encode_frame({'kind': 'hello', 'nonce': 'x' * 32}))\nprint(cut(s))"

    result = await run(program, capability=ONE_TOOL, call_tool=echo)

    assert result.user_out_tail == "True\n"
    assert result.record.refusals == {"wrong_nonce": 1}


async def test_abuse_closes_only_its_own_connection(run):
    program = (
        RAW
        + """
good = hello()
for nonsense in (struct.pack(">I", 100 << 20), struct.pack(">I", 0x80000005) + b"hello",
                 struct.pack(">I", 3) + b"{x}", struct.pack(">I", 2) + b"[]",
                 encode_frame({"kind": "call", "id": 1}), encode_frame({"kind": "launch"})):
    for s in (connect(), hello()):
        s.sendall(nonsense)
        print(cut(s), end=" ")
deep = b'{"kind":"call","id":1,"tool_id":"a.b","arguments":{"a":'
deep += b"[" * 200000 + b"]" * 200000 + b"}}"
s = hello(); s.sendall(struct.pack(">I", len(deep)) + deep)
print(cut(s), ask(good, 1)["ok"])
"""
    )

    result = await run(program, capability=ONE_TOOL, call_tool=echo, timeout_s=20)

    assert result.user_out_tail == "True " * 13 + "True\n", result.report_text
    assert result.record.refusals["too_large"] == 2


async def test_a_half_frame_and_a_silent_connection_are_closed(run):
    program = (
        RAW
        + """
silent = connect()
half = hello(); half.sendall(struct.pack(">I", 1000) + b"{")
drip = hello(); drip.sendall(struct.pack(">I", 1000))
import threading, time
def feed():
    try:
        for _ in range(30): drip.sendall(b" "); time.sleep(0.3)
    except OSError: pass
threading.Thread(target=feed, daemon=True).start()
print(cut(silent), cut(half), cut(drip))
"""
    )

    result = await run(program, capability=ONE_TOOL, call_tool=echo, timeout_s=20)

    assert result.user_out_tail == "True True True\n", result.report_text
    assert result.record.refusals == {"too_slow": 3}
    assert result.duration_ms < 9000


async def test_ten_thousand_connections_end_the_listener_not_the_session(run):
    program = (
        RAW
        + """
good = hello()
refused = 0
for _ in range(10000):
    try: connect().close()
    except OSError: refused += 1
print(refused > 9000, ask(good, 1)["ok"])
"""
    )

    result = await run(program, capability=ONE_TOOL, call_tool=echo, timeout_s=20)

    assert result.user_out_tail == "True True\n", result.report_text


async def test_ten_thousand_calls_are_bounded(run):
    program = (
        RAW
        + """
s = hello(); sent = 0
try:
    for number in range(10000):
        ask(s, number)['ok']; sent += 1
except (OSError, TypeError): pass
print(sent < 10000)
"""
    )

    result = await run(program, capability=ONE_TOOL, call_tool=echo)

    assert result.user_out_tail == "True\n", result.report_text
    assert len(result.record.calls) == 5
    assert result.record.refusals["quota_calls"] <= 101


async def test_the_nonce_of_an_earlier_run_is_refused(run):
    tell = "print(web_tools._call.__self__._nonce)"
    earlier = (await run(tell, capability=ONE_TOOL, call_tool=echo)).user_out_tail.strip()
    program = (
        RAW
        + f"""
good = hello()
s = connect(); s.sendall(encode_frame({{"kind": "hello", "nonce": {earlier!r}}}))
print(cut(s), ask(good, 1)["ok"])
"""
    )

    result = await run(program, capability=ONE_TOOL, call_tool=echo)

    assert len(earlier) > 20
    assert result.user_out_tail == "True True\n", result.report_text
    assert result.record.refusals == {"wrong_nonce": 1}
