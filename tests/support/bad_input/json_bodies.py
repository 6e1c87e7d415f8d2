"""Bodies that are not acceptable JSON, or that no endpoint accepts."""

from bad_input.cases import MALFORMED, UNPROCESSABLE, Refusal

SMALL_BYTES = 262_144
"""The cap of all bodies except messages and signals, whose cap is larger."""

JSON_BODIES: dict[str, tuple[bytes, Refusal]] = {
    # Not to be read
    "nothing": (b"", MALFORMED),
    "blanks": (b" \n\t ", MALFORMED),
    "cut off": (b'{"text": "a', MALFORMED),
    "two values": (b"{}{}", MALFORMED),
    "a form": (b"text=a&title=b", MALFORMED),
    "a comment": (b'{"text":"a"/* b */}', MALFORMED),
    "a comma at the end": (b'{"text":"a",}', MALFORMED),
    "single quotes": (b"{'text':'a'}", MALFORMED),
    "a line in a text": (b'{"text":"a\nb"}', MALFORMED),
    "a bad escape": (b'{"text":"\\x41"}', MALFORMED),
    # In other bytes than UTF-8
    "byte order mark": (b'\xef\xbb\xbf{"text":"a"}', MALFORMED),
    "utf-16": ('{"text":"a"}'.encode("utf-16"), MALFORMED),
    "utf-16 without a mark": ('{"text":"a"}'.encode("utf-16-le"), MALFORMED),
    "utf-32": ('{"text":"a"}'.encode("utf-32-be"), MALFORMED),
    "latin-1": (b'{"text":"\xe9"}', MALFORMED),
    "overlong": (b'{"text":"\xc0\xaf"}', MALFORMED),
    "surrogate in utf-8": (b'{"text":"\xed\xa0\x80"}', MALFORMED),
    # Not to be stored
    "lone surrogate": (b'{"text":"\\ud800"}', MALFORMED),
    "surrogates the wrong way round": (b'{"text":"\\udc00\\ud800"}', MALFORMED),
    "surrogate in a key": (b'{"\\udfff":"a"}', MALFORMED),
    "U+0000": (b'{"text":"a\\u0000b"}', MALFORMED),
    "U+0000 in a key": (b'{"a\\u0000":"b"}', MALFORMED),
    "U+0000 as a byte": (b'{"text":"a\x00b"}', MALFORMED),
    # Too much of something
    "depth 10,000": (b'{"text":' + b"[" * 10_000 + b"]" * 10_000 + b"}", MALFORMED),
    "depth 10,000 of objects": (b'{"text":' * 10_000 + b"1" + b"}" * 10_000, MALFORMED),
    "depth that never ends": (b"[" * 200_000, MALFORMED),
    "100,001 values": (b"[" + b"," * 100_001 + b"]", MALFORMED),
    "a number of 5,000 digits": (b'{"limit":' + b"9" * 5000 + b"}", MALFORMED),
    "a number of 64 bits": (b'{"limit":9223372036854775808}', MALFORMED),
    "1e999": (b'{"limit":1e999}', MALFORMED),
    "NaN": (b'{"text":NaN}', MALFORMED),
    "Infinity": (b'{"confidence":-Infinity}', MALFORMED),
    "a leading zero": (b'{"limit":007}', MALFORMED),
    # Meant twice
    "a key twice": (b'{"text":"a","text":"b"}', MALFORMED),
    "a key twice, once escaped": (b'{"text":"a","\\u0074ext":"b"}', MALFORMED),
    "a key twice inside": (b'{"text":{"a":1,"a":2}}', MALFORMED),
    # Readable, but nothing of ours
    "a list": (b"[]", UNPROCESSABLE),
    "a text": (b'"text"', UNPROCESSABLE),
    "a number": (b"7", UNPROCESSABLE),
    "null": (b"null", UNPROCESSABLE),
    "an unknown field": (b'{"no_such_field":1}', UNPROCESSABLE),
    "a field that looks like ours": ('{"te\u0445t":"a"}'.encode(), UNPROCESSABLE),
    "pollution": (b'{"__proto__":{"admin":true},"constructor":{}}', UNPROCESSABLE),
    "2,000 keys": (b"{" + b",".join(b'"k%d":1' % n for n in range(2_000)) + b"}", UNPROCESSABLE),
    "other types": (
        b'{"text":{},"title":[],"reaction":7,"conversation_id":false,"turn_ids":"x","kind":3,"rn":[],"query":{},'
        b'"from":[],"to":{},"limit":"x","turn_id":[]}',
        UNPROCESSABLE,
    ),
}
"""By name: the body, and the answer that every endpoint with a body gives."""

MANY_KEYS = b"{" + b",".join(b'"k%d":1' % n for n in range(20_000)) + b"}"
MILLION_KEYS = b"{" + b",".join(b'"k%d":1' % n for n in range(1_000_000)) + b"}"
"""13 MB: above the cap of small bodies, and below that of messages."""
