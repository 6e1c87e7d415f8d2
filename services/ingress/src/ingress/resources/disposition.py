"""How a browser may treat a stored file: never as a page of ours."""

from urllib.parse import quote

SANDBOX_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:"

_INLINE = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp", "text/plain", "application/pdf"})
"""Types that a browser shows without running anything of them; everything else is a download."""
_ATTR_CHARS = "!#$&+-.^_`|~"
"""RFC 8187 attr-char besides letters and digits."""


def content_type(mime: str) -> str:
    """The Content-Type header; text is UTF-8."""
    return f"{mime}; charset=utf-8" if mime.startswith("text/") else mime


def build_disposition(filename: str, mime: str, *, download: bool) -> str:
    """The Content-Disposition of RFC 6266: the name in ASCII and, where that loses something, by RFC 8187."""
    kind = "inline" if mime in _INLINE and not download else "attachment"
    plain = "".join(char if " " <= char <= "~" and char not in '"\\%' else "_" for char in filename)
    extended = "" if plain == filename else f"; filename*=UTF-8''{quote(filename, safe=_ATTR_CHARS)}"
    return f'{kind}; filename="{plain}"{extended}'
