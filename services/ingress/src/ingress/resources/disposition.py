"""How a browser may treat a stored file: never as a page of ours."""

from urllib.parse import quote

SANDBOX_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:"

_INLINE_FILES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp", "application/pdf"})
"""Types that a browser shows without running anything of them."""
_INLINE_TEXT = "text/plain"
"""Shown as well, but for texts under a name that makes programs run them or look for them; all else is a download."""
_ACTIVE_NAMES = (".htm", ".html", ".xhtml", ".xht", ".shtml", ".mht", ".mhtml", ".eml", ".svg", ".xml", ".xsl", ".xslt")
_ATTR_CHARS = "!#$&+-.^_`|~"
"""RFC 8187 attr-char besides letters and digits."""


def content_type(mime: str) -> str:
    """The Content-Type header; text is UTF-8 unless its type names another encoding."""
    return f"{mime}; charset=utf-8" if mime.startswith("text/") and ";" not in mime else mime


def build_disposition(filename: str, mime: str, *, download: bool, guarded: bool = True) -> str:
    """The Content-Disposition of RFC 6266: the name in ASCII and, where that loses something, by RFC 8187.

    An answer that is not `guarded` lacks our headers against guessing of types, so that its texts are downloads.
    """
    base = mime.partition(";")[0].strip()
    shows_text = base == _INLINE_TEXT and guarded and not filename.lower().endswith(_ACTIVE_NAMES)
    kind = "inline" if (base in _INLINE_FILES or shows_text) and not download else "attachment"
    plain = "".join(char if " " <= char <= "~" and char not in '"\\%' else "_" for char in filename)
    extended = "" if plain == filename else f"; filename*=UTF-8''{quote(filename, safe=_ATTR_CHARS)}"
    return f'{kind}; filename="{plain}"{extended}'
