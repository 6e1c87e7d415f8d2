"""Invalid ids in paths, bodies and queries."""

from typing import Any
from urllib.parse import quote

from bad_input.cases import ABSENT, ARTIFACT, CONVERSATION, MALFORMED, TURN, UNPROCESSABLE, UUID, Refusal

ODD_IDS: dict[str, str] = {
    "absent": f"{{prefix}}_{UUID}",
    "of another kind": f"plan_{UUID}",
    "without its prefix": UUID,
    "in capitals": f"{{prefix}}_{UUID.upper()}",
    "of another version": f"{{prefix}}_{UUID.replace('-774b', '-474b')}",
    "with a newline": f"{{prefix}}_{UUID}\n",
    "with a blank": f" {{prefix}}_{UUID}",
    "with NUL": f"{{prefix}}_{UUID}\x00",
    "with other digits": f"{{prefix}}_{UUID.replace('0', chr(0x660))}",
    "with a letter that looks the same": f"{{prefix}}_{UUID.replace('a', chr(0x430))}",
    "in braces": f"{{prefix}}_{{{{{UUID}}}}}",
    "glob": "*",
    "glob of one": "{prefix}_????????-*",
    "sql": "{prefix}_' OR 1=1 --",
    "sql percent": "%",
    "a key of ours": "{{x}}:events:1",
    "with a colon": f"{{prefix}}_{UUID}:x",
    "10 KB": "{prefix}_" + "0" * 10_000,
    "up": "..",
    "up, twice escaped": "..%2f..%2fetc%2fpasswd",
    "up, three times": "%252e%252e%252f",
    "absolute": "/etc/passwd",
    "of windows": "..\\..\\boot.ini",
    "a device": "/proc/self/environ",
    "turned around": f"{{prefix}}_\u202e{UUID}",
    "a dot": ".",
    "null": "null",
    "minus one": "-1",
}
"""By name; `{prefix}` is that of the place. Each is absent in any position of a path."""

ODD_IN_BODIES = tuple(name for name in ODD_IDS if name not in ("absent", "with NUL", "10 KB"))
"""The other three have answers of their own there: one may be right, one is no JSON, one is above a cap."""

PREFIXES = {"conversation_id": "conv", "turn_id": "turn", "signal_id": "sig", "artifact_id": "art", "memory_id": "mem"}

ODD_SCOPES: dict[str, str] = {
    "colon": "a:b",
    "brace": "{x}",
    "up": "..",
    "NUL": "a\x00",
    "65 letters": "x" * 65,
    "dash first": "-a",
    "other digits": "٣",
    "not NFC": "de\u0301fault",
    "turned around": "\u202edefault",
    "blank": " default",
    "newline": "default\n",
    "star": "*",
    "nothing": " ",
}
"""Invalid names of a tenant or a project."""


def odd_id(case: str, prefix: str) -> str:
    """The text of a case at a place with this prefix."""
    return ODD_IDS[case].format(prefix=prefix)


def escaped(text: str) -> str:
    """As one part of a path."""
    return quote(text, safe="") if text.strip(".") else text.replace(".", "%2E")


Place = tuple[str, str, Any, Refusal]
ID_PLACES: dict[str, Place] = {
    "fetched conversation": ("POST", "/fetch", {"conversation_id": "{odd}"}, ABSENT),
    "searched conversation": ("POST", "/search", {"query": "a", "conversation_id": "{odd}"}, ABSENT),
    "fetched turn": ("POST", "/fetch", {"conversation_id": "{own}", "turn_ids": ["{odd}"]}, ABSENT),
    "judged turn": ("POST", "/{own}/turns-with-feedbacks", {"turn_ids": ["{odd}"]}, ABSENT),
    "turn of a fork": ("POST", "/{own}/fork", {"turn_id": "{odd}"}, ABSENT),
    "target of a message": ("POST", "/{own}/messages", {"text": "a", "target_turn_id": "{odd}"}, UNPROCESSABLE),
    "target of a signal": ("POST", "/{own}/signals", {"kind": "cancel", "target_turn_id": "{odd}"}, UNPROCESSABLE),
    "cursor of turns": ("POST", "/fetch", {"conversation_id": "{own}", "cursor": "{odd}"}, MALFORMED),
    "cursor of hits": ("POST", "/search", {"query": "a", "cursor": "{odd}"}, MALFORMED),
    "cursor of conversations": ("GET", "?cursor={odd}", None, MALFORMED),
    "cursor of events": ("GET", "/{own}/events?after={odd}", None, MALFORMED),
}
"""Ids outside of paths, with the answer for an id that is not ours. `{own}` is an existing conversation; the answer
contains what the place expects."""

_RN = f"ef:default:default:chatbot:upload:dev:{CONVERSATION}:{TURN}:attachment:a.csv"
RNS: dict[str, tuple[str, Refusal]] = {
    "absent": (_RN, ABSENT),
    "of another user": (_RN.replace(":dev:", ":ann:"), ABSENT),
    "of another tenant": (_RN.replace("ef:default", "ef:acme"), ABSENT),
    "with odd ids": (_RN.replace(CONVERSATION, "x"), ABSENT),
    "a path up": (_RN.replace("a.csv", "../../a.csv"), UNPROCESSABLE),
    "a path up, escaped": (_RN.replace("a.csv", "..%2F..%2Fetc"), UNPROCESSABLE),
    "an absolute path": (_RN.replace("a.csv", "/etc/passwd"), UNPROCESSABLE),
    "NUL": (_RN + "%00", UNPROCESSABLE),
    "another spelling": (_RN.replace("a.csv", "%61.csv"), UNPROCESSABLE),
    "a part too many": (_RN + ":x", UNPROCESSABLE),
    "another harness": (_RN.replace("upload", "system"), UNPROCESSABLE),
    "another role": (_RN.replace(":attachment:", ":secret:"), UNPROCESSABLE),
    "no rn": ("*", UNPROCESSABLE),
    "an id": (ARTIFACT, UNPROCESSABLE),
    "nothing": ("", UNPROCESSABLE),
    "10 KB": (_RN + "x" * 10_000, UNPROCESSABLE),
    "bytes that are no text": (_RN + "%ff", UNPROCESSABLE),
}
