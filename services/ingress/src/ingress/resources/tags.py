"""Entity tags of RFC 9110: whether a client has a file already."""

import re
from collections.abc import Iterable

_TAG = re.compile(r'(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")')


def has_tag(headers: Iterable[str], tag: str) -> bool:
    """Whether `If-None-Match`, which may be a list, weak or `*`, holds the tag; the comparison is the weak one."""
    told = ",".join(headers).strip()
    return told == "*" or tag in _TAG.findall(told)
