"""Bytes that are not HTTP, or HTTP that two parsers could read differently."""

from bad_input.cases import (
    ABSENT,
    BASE,
    FORBIDDEN,
    HEADERS_TOO_LARGE,
    MALFORMED,
    NOT_ALLOWED,
    TOO_LARGE,
    UNSUPPORTED,
    Refusal,
)

GOOD = b'{"text":"stored only by mistake"}'
LENGTH = b"Content-Length: %d\r\n" % len(GOOD)
HOST, JSON = b"Host: localhost\r\n", b"Content-Type: application/json\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNK = b"%x\r\n%s\r\n" % (len(GOOD), GOOD)


def post(*headers: bytes, body: bytes = b"", first: bytes = b"") -> bytes:
    """A message to a new conversation with these header lines."""
    line = first or b"POST " + BASE.encode() + b"/new/messages HTTP/1.1\r\n"
    return line + b"".join(headers) + b"\r\n" + body


def get(target: bytes, *headers: bytes) -> bytes:
    return post(HOST, *headers, first=b"GET " + target + b" HTTP/1.1\r\n")


def sized(length: bytes, body: bytes = GOOD) -> bytes:
    return post(HOST, JSON, b"Content-Length: " + length + b"\r\n", body=body)


def chunks(raw: bytes) -> bytes:
    return post(HOST, JSON, CHUNKED, body=raw)


RAW_HTTP: dict[str, tuple[bytes, Refusal]] = {
    # The first line
    "tls": (b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + bytes(20), MALFORMED),
    "blank lines": (b"\r\n" * 20 + b"\x00\r\n\r\n", MALFORMED),
    "http 0.9": (b"GET /healthz\r\n\r\n", MALFORMED),
    "http 2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", MALFORMED),
    "http 1.2": (post(HOST, first=b"GET /healthz HTTP/1.2\r\n"), MALFORMED),
    "version of letters": (post(HOST, first=b"GET /healthz HTTP/x.y\r\n"), MALFORMED),
    "method with a bracket": (post(HOST, first=b"GE(T /healthz HTTP/1.1\r\n"), MALFORMED),
    "method of 10 KB": (post(HOST, first=b"X" * 10_000 + b" /healthz HTTP/1.1\r\n"), MALFORMED),
    "lower case method": (post(HOST, first=b"get /healthz HTTP/1.1\r\n"), MALFORMED),
    "method of another protocol": (post(HOST, first=b"PROPFIND /healthz HTTP/1.1\r\n"), NOT_ALLOWED),
    "line ends without returns": (b"GET /healthz HTTP/1.1\nHost: localhost\n\n", MALFORMED),
    "space in the path": (get(b"/health z"), MALFORMED),
    "bytes above ascii in the path": (get(b"/h\xc3\xa9alth"), MALFORMED),
    "tab in the path": (get(b"/health\tz"), MALFORMED),
    "whole address of another host": (get(b"http://evil.example/healthz"), MALFORMED),
    "host without a path": (post(HOST, first=b"CONNECT evil.example:80 HTTP/1.1\r\n"), MALFORMED),
    "fragment": (get(b"/healthz#x"), MALFORMED),
    "two slashes": (get(b"//evil.example/healthz"), ABSENT),
    "a star": (get(b"*"), MALFORMED),
    "dots": (get(b"/docs/../../../etc/passwd"), ABSENT),
    "percent of nothing": (get(BASE.encode() + b"/%zz"), ABSENT),
    "percent that is no utf-8": (get(BASE.encode() + b"/%ff%fe"), ABSENT),
    "path of 30 KB": (get(b"/" + b"x" * 30_000), ABSENT),
    "path of 300 KB": (get(b"/" + b"x" * 300_000), HEADERS_TOO_LARGE),
    "query of 10,000 fields": (get(BASE.encode() + b"?" + b"a=1&" * 10_000), HEADERS_TOO_LARGE),
    # Who is meant
    "no host": (post(JSON, LENGTH, body=GOOD), MALFORMED),
    "two hosts": (post(HOST, b"Host: evil.example\r\n", JSON, LENGTH, body=GOOD), MALFORMED),
    "host of another": (post(b"Host: evil.example\r\n", JSON, LENGTH, body=GOOD), FORBIDDEN),
    "host with a user": (post(b"Host: localhost@evil.example\r\n", JSON, LENGTH, body=GOOD), FORBIDDEN),
    "host of nothing": (post(b"Host:\r\n", JSON, LENGTH, body=GOOD), FORBIDDEN),
    "two users": (post(HOST, b"X-Dev-User: a\r\nX-Dev-User: b\r\n", JSON, LENGTH, body=GOOD), MALFORMED),
    "user of spaces": (post(HOST, b"X-Dev-User: a b\r\n", JSON, LENGTH, body=GOOD), MALFORMED),
    "forwarded": (post(HOST, b"X-Forwarded-For: 1.2.3.4\r\n", JSON, LENGTH, body=GOOD), FORBIDDEN),
    # Header lines
    "no colon": (post(HOST, b"NoColon\r\n"), MALFORMED),
    "no name": (post(HOST, b": x\r\n"), MALFORMED),
    "space before the colon": (post(HOST, b"X : y\r\n"), MALFORMED),
    "NUL": (post(HOST, b"X: a\x00b\r\n"), MALFORMED),
    "return inside": (post(HOST, b"X: a\rb\r\n"), MALFORMED),
    "line feed inside": (post(HOST, b"X: a\nb: c\r\n"), MALFORMED),
    "escape": (post(HOST, b"X: a\x1bb\r\n"), MALFORMED),
    "folded": (post(HOST, b"X: a\r\n b\r\n"), MALFORMED),
    "folded first": (post(b" X: a\r\n", HOST), MALFORMED),
    "100 KB of headers": (get(b"/healthz", b"X: " + b"y" * 100_000 + b"\r\n"), HEADERS_TOO_LARGE),
    "300 KB of headers": (get(b"/healthz", b"X: " + b"y" * 300_000 + b"\r\n"), HEADERS_TOO_LARGE),
    "150 headers": (get(b"/healthz", b"X: y\r\n" * 150), HEADERS_TOO_LARGE),
    "100,000 headers": (get(b"/healthz", b"X: y\r\n" * 100_000), HEADERS_TOO_LARGE),
    # How long the body is
    "two lengths": (post(HOST, JSON, LENGTH, b"Content-Length: 2\r\n", body=GOOD), MALFORMED),
    "the same length twice": (post(HOST, JSON, LENGTH, LENGTH, body=GOOD), MALFORMED),
    "the length twice in a line": (sized(b"2, 3"), MALFORMED),
    "length and chunks": (post(HOST, JSON, LENGTH, CHUNKED, body=CHUNK + b"0\r\n\r\n"), MALFORMED),
    "chunks in http 1.0": (
        post(HOST, JSON, CHUNKED, body=CHUNK + b"0\r\n\r\n", first=f"POST {BASE}/new/messages HTTP/1.0\r\n".encode()),
        MALFORMED,
    ),
    "negative length": (sized(b"-1"), MALFORMED),
    "length with a sign": (sized(b"+33"), MALFORMED),
    "length in hex": (sized(b"0x21"), MALFORMED),
    "length with an underscore": (sized(b"3_3"), MALFORMED),
    "length of nothing": (sized(b""), MALFORMED),
    "length of other digits": (sized("٣٣".encode()), MALFORMED),
    "length of 1,000 digits": (sized(b"9" * 1000), MALFORMED),
    "length of 19 digits": (sized(b"9" * 19), TOO_LARGE),
    "shorter than it is": (sized(b"5"), MALFORMED),
    "body without length": (post(HOST, JSON, body=GOOD), MALFORMED),
    # Chunks
    "chunk of letters": (chunks(b"zz\r\n{}\r\n0\r\n\r\n"), MALFORMED),
    "negative chunk": (chunks(b"-5\r\n{}\r\n0\r\n\r\n"), MALFORMED),
    "chunk of 100 digits": (chunks(b"f" * 100 + b"\r\n"), MALFORMED),
    "chunk without its end": (chunks(b"2\r\n{}xx0\r\n\r\n"), MALFORMED),
    "chunks without returns": (chunks(b"2\n{}\n0\n\n"), MALFORMED),
    "line feed in a chunk's words": (chunks(b"2;\n{}\r\n0\r\n\r\n"), MALFORMED),
    "blank after a chunk's size": (chunks(b"2 \r\n{}\r\n0\r\n\r\n"), MALFORMED),
    "chunk of 300 KB of words": (chunks(b"2;" + b"x" * 300_000), HEADERS_TOO_LARGE),
    "trailer that is none": (chunks(CHUNK + b"0\r\nno colon\r\n\r\n"), MALFORMED),
    "other coding of transfer": (post(HOST, JSON, b"Transfer-Encoding: gzip, chunked\r\n", body=CHUNK), MALFORMED),
    "unknown coding of transfer": (post(HOST, JSON, b"Transfer-Encoding: identity\r\n", body=GOOD), MALFORMED),
    "coding of transfer in quotes": (post(HOST, JSON, b'Transfer-Encoding: "chunked"\r\n', body=CHUNK), MALFORMED),
    "coding of transfer twice in a line": (
        post(HOST, JSON, b"Transfer-Encoding: chunked, chunked\r\n", body=CHUNK),
        MALFORMED,
    ),
    "two codings of transfer": (post(HOST, JSON, CHUNKED, CHUNKED, body=CHUNK + b"0\r\n\r\n"), MALFORMED),
    "chunks that hide": (post(HOST, JSON, b"Transfer-Encoding: xchunked\r\n", LENGTH, body=GOOD), MALFORMED),
    # What the body is
    "two types": (post(HOST, JSON, b"Content-Type: text/plain\r\n", LENGTH, body=GOOD), MALFORMED),
    "two codings": (post(HOST, JSON, b"Content-Encoding: identity\r\n" * 2, LENGTH, body=GOOD), MALFORMED),
    "gzip": (post(HOST, JSON, b"Content-Encoding: gzip\r\n", LENGTH, body=GOOD), UNSUPPORTED),
    "gzip in a list": (post(HOST, JSON, b"Content-Encoding: identity, gzip\r\n", LENGTH, body=GOOD), UNSUPPORTED),
    "coding of nothing": (post(HOST, JSON, b"Content-Encoding:\r\n", LENGTH, body=GOOD), UNSUPPORTED),
    "another charset": (post(HOST, JSON[:-2] + b"; charset=utf-16\r\n", LENGTH, body=GOOD), UNSUPPORTED),
    "type without a body": (post(HOST, JSON), MALFORMED),
    "no type": (post(HOST, LENGTH, body=GOOD), UNSUPPORTED),
    "upgrade to h2c": (post(HOST, b"Connection: Upgrade\r\nUpgrade: h2c\r\n", LENGTH, body=GOOD), UNSUPPORTED),
    "expects what is unknown": (post(HOST, b"Expect: 200-maybe\r\n", LENGTH, body=GOOD), UNSUPPORTED),
}
"""By name: the bytes, and the answer."""

SILENT_HTTP: dict[str, bytes] = {
    "length longer than the body": sized(b"5000"),
    "chunks without an end": chunks(CHUNK),
    "chunk longer than it is": chunks(b"ffff\r\n" + GOOD),
    "chunk of 64 bits": chunks(b"f" * 16 + b"\r\n" + GOOD),
    "headers without an end": post(HOST, JSON, LENGTH)[:-2],
    "half a line": b"POST ",
}
"""The client closes its side without completing the request: nothing is answered and nothing is stored."""
