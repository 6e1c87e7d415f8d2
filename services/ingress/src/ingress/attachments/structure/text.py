"""Text: recognised by its content, whatever its name, in any encoding still in use."""

import codecs
import re

from charset_normalizer import from_bytes

from ingress.attachments.structure.limits import Sound, Unsound

_UTF16 = {b"\xff\xfe": "utf-16le", b"\xfe\xff": "utf-16be"}
ISO_2022 = {
    "iso-2022-jp": (b"\x1b$B", b"\x1b$@", b"\x1b(J", b"\x1b(I"),
    "iso-2022-kr": (b"\x1b$)C",),
}
"""Seven-bit encodings, whose bytes are also ASCII, by the escapes that switch them."""
_CONTROLS = bytes(sorted({*range(0x01, 0x09), *range(0x0E, 0x1A), *range(0x1C, 0x20), 0x7F} - {0x08}))
"""Characters that are rare in text. Tabs, line and page ends, backspace, escape and the DOS end-of-file mark are not
included."""
_MIN_CONTROLS, _CONTROLS_SHARE = 3, 100
"""At least this many, and more than one per this many bytes, make a file binary: every eleventh byte of packed data is
a control character."""
_SAMPLE_BYTES, _LINE_BYTES = 32_768, 2_000
_DAMAGE_SHARE = 10
"""With at least this many whole non-ASCII characters per broken one, a text counts as damaged UTF-8."""
LABELS = {
    "cp932": "shift_jis", "shift_jis_2004": "shift_jis", "shift_jisx0213": "shift_jis", "shift_jis": "shift_jis",
    "euc_jp": "euc-jp", "euc_jis_2004": "euc-jp", "euc_jisx0213": "euc-jp", "gb2312": "gb18030", "gbk": "gb18030",
    "gb18030": "gb18030", "big5": "big5", "big5hkscs": "big5", "cp950": "big5", "euc_kr": "euc-kr", "cp949": "euc-kr",
    "cp1250": "windows-1250", "cp1251": "windows-1251", "cp1252": "windows-1252", "cp1253": "windows-1253",
    "cp1254": "windows-1254", "cp1255": "windows-1255", "cp1256": "windows-1256", "cp1257": "windows-1257",
    "cp1258": "windows-1258", "cp874": "windows-874", "iso8859_2": "iso-8859-2", "iso8859_5": "iso-8859-5",
    "iso8859_7": "iso-8859-7", "iso8859_8": "iso-8859-8", "koi8_r": "koi8-r", "koi8_u": "koi8-u", "cp866": "ibm866",
    "mac_roman": "macintosh", "mac_cyrillic": "x-mac-cyrillic",
}  # fmt: skip
"""Python's codecs for encodings of the WHATWG list, which browsers read, and their labels in that list."""
_RUN = re.compile(rb"[\x80-\xff]+")
_CENTRAL_EUROPEAN = (
    # Letters of windows-1250 that are symbols in windows-1252: Polish, Romanian and others.
    re.compile(
        rb"(?<=[A-Za-z\x80-\xff])[\xa3\xa5\xaa\xaf\xb3\xb9\xba\xbe\xbf]"
        rb"|[\xa3\xa5\xaa\xaf\xb3\xb9\xba\xbe\xbf](?=[A-Za-z\x80-\xff])"
    ),
    # Letters that are frequent in Czech and Slovak and rare in the languages of windows-1252.
    re.compile(rb"[\x9a\x9d\x9e\xec\xf2\xf8]"),
)
_CENTRAL_EUROPEAN_SHARE = 5
"""One per this many non-ASCII characters."""


def preload_text() -> None:
    """Preload the codecs: a confined fork can't import the module of an encoding."""
    for codec in LABELS:
        codecs.lookup(codec)
    from_bytes("Ещё немного слов".encode("cp1251"), cp_isolation=[*LABELS]).best()


def check_text(data: bytes) -> Sound:
    """Find the text's encoding; raises Unsound for what is not text. The text itself is stored unchanged."""
    return Sound(charset=find_charset(data))


def find_charset(data: bytes) -> str:
    """The label of the encoding, empty for UTF-8. Raises Unsound for what is not text."""
    if data[:2] in _UTF16 or b"\0" in data:
        return _check_utf16(data)
    try:
        data.decode()
        is_utf8 = True
    except UnicodeDecodeError:
        is_utf8 = False
    if data.isascii() and (charset := _find_iso_2022(data)):
        return charset
    controls = len(data) - len(data.translate(None, _CONTROLS))
    if controls >= _MIN_CONTROLS and controls * _CONTROLS_SHARE > len(data):
        raise Unsound("it is not text: it contains many control characters")
    if is_utf8:
        return ""
    sample = _take_sample(data)
    return "" if _is_damaged_utf8(sample) else _guess(data, sample)


def _check_utf16(data: bytes) -> str:
    """Detect UTF-16 by its byte order mark, or because most characters have a zero byte."""
    codec = _UTF16.get(data[:2])
    if codec is None:
        zeros = (data[0::2].count(0), data[1::2].count(0))
        codec = "utf-16be" if zeros[0] > zeros[1] else "utf-16le"
        if len(data) % 2 or max(zeros) * 5 < len(data) or min(zeros) * 50 > len(data):
            raise Unsound("it is not text: it contains zero bytes")
    try:
        text = data.decode(codec)
    except UnicodeDecodeError as error:
        raise Unsound(f"it is not text: it is invalid UTF-16 at byte {error.start}") from error
    if "\0" in text:
        raise Unsound("it is not text: it contains zero bytes")
    return codec


def _find_iso_2022(data: bytes) -> str:
    for label, escapes in ISO_2022.items():
        if any(escape in data for escape in escapes):
            try:
                data.decode(label)
            except UnicodeDecodeError:
                continue
            return label
    return ""


def _is_damaged_utf8(sample: bytes) -> bool:
    """Whether it is UTF-8 with truncated or foreign parts, such as the log of several programs."""
    text = sample.decode("utf-8", "replace")
    broken = text.count("\ufffd") - sample.count("\ufffd".encode())
    whole = len(text) - len(text.encode("ascii", "ignore")) - text.count("\ufffd")
    return whole >= _DAMAGE_SHARE * broken


def _guess(data: bytes, sample: bytes) -> str:
    """The likeliest encoding; by default windows-1252, which browsers assume for undeclared text."""
    runs = _RUN.findall(sample)
    high = sum(map(len, runs))
    if high < 2 * len(runs) and high * 10 < len(sample) * 4:
        # Most letters are ASCII, and those beyond ASCII stand alone: a language in Latin letters.
        signs = max(len(pattern.findall(sample)) for pattern in _CENTRAL_EUROPEAN)
        return "windows-1250" if signs * _CENTRAL_EUROPEAN_SHARE >= high else "windows-1252"
    for found in from_bytes(sample, cp_isolation=[*LABELS], preemptive_behaviour=False):
        if _decodes(data, found.encoding):
            return LABELS.get(found.encoding, "windows-1252")
    return "windows-1252"


def _take_sample(data: bytes) -> bytes:
    """The lines with non-ASCII bytes, up to the limit; cut at an ASCII byte, so that no character is split."""
    lines: list[bytes] = []
    size = at = 0
    while size < _SAMPLE_BYTES and (run := _RUN.search(data, at)):
        start = max(at, data.rfind(b"\n", at, run.start()) + 1, run.start() - _LINE_BYTES)
        end = data.find(b"\n", run.end(), run.end() + _LINE_BYTES) + 1
        at = end or min(len(data), run.end() + _LINE_BYTES)
        lines.append(data[start:at])
        size += at - start
    sample = b"".join(lines)[:_SAMPLE_BYTES]
    return sample[: sample.rfind(b" ") + 1] or sample if len(sample) == _SAMPLE_BYTES else sample


def _decodes(data: bytes, codec: str) -> bool:
    try:
        data.decode(codec)
    except UnicodeDecodeError:
        return False
    return True
