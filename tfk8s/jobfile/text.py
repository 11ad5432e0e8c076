"""The text of a file that anyone may have written: its size, its encoding and its characters."""

from __future__ import annotations

import codecs
import re

from tfk8s.errors import Problem
from tfk8s.jobfile.document import Document, Location
from tfk8s.jobfile.syntax import code_point

MAX_BYTES = 1 << 20

_LINE_BREAK = re.compile(r"\r\n|\r|\n")
# Characters that YAML forbids, and characters that some parsers read as a line break or a byte order mark.
BAD_CHARACTER = "[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
BAD_ASCII = "[\0-\b\v\f\x0e-\x1f\x7f]"


def decode(data: bytes, noun: str) -> tuple[Document, str | None]:
    """Return an empty document with the lines of a file, and the text, or None if the file has a problem.

    Args:
        data: the file.
        noun: the file in messages, such as "a job file".
    """
    if len(data) > MAX_BYTES:
        return _unreadable("too-large", f"{noun} can have at most 1 MiB"), None
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _unreadable("not-utf8", "the file is UTF-16, not UTF-8", "save it as UTF-8"), None
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if b"\0" in data:
            return _unreadable("binary-file", f"this is a binary file, not {noun}"), None
        return _not_utf8(data, error), None
    document = Document(_LINE_BREAK.split(text))
    bad = re.search(BAD_ASCII if text.isascii() else BAD_CHARACTER, text)  # to compile the latter takes 10 ms
    if bad:
        document.problems.append(_bad_character(document, text, bad, noun))
        return document, None
    return document, text


def _unreadable(code: str, message: str, advice: str | None = None) -> Document:
    return Document([], problems=[Problem(code, message, help=advice)])


def _not_utf8(data: bytes, error: UnicodeDecodeError) -> Document:
    before = _LINE_BREAK.split(data[: error.start].decode())
    document = Document(_LINE_BREAK.split(data.decode(errors="replace")))
    location = Location(len(before), len(before[-1]) + 1, 1)
    message = f"byte 0x{data[error.start]:02x} is not UTF-8"
    document.problems.append(document.problem("not-utf8", message, location, advice="save the file as UTF-8"))
    return document


def _bad_character(document: Document, text: str, bad: re.Match[str], noun: str) -> Problem:
    before = _LINE_BREAK.split(text[: bad.start()])
    location = Location(len(before), len(before[-1]) + 1, 1)
    return document.problem("bad-character", f"{code_point(bad.group())} is not allowed in {noun}", location)
