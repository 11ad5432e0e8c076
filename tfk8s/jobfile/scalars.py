"""What a YAML scalar without quotes means, where all parsers agree.

YAML 1.1 (PyYAML, and Go's parsers: Helm, kubectl) and YAML 1.2 differ: `yes`, `010`, `1e3`, `22:30` or `1_000` are a
truth value, a number, a duration or text, depending on who reads. Such a scalar becomes an `Unclear`, and whoever
knows what is expected in its place says what to write instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_NOTHING = frozenset({"", "~", "null", "Null", "NULL"})
_YES = frozenset({"y", "Y", "yes", "Yes", "YES", "on", "On", "ON"})
_NO = frozenset({"n", "N", "no", "No", "NO", "off", "Off", "OFF"})
_WORDS = _NOTHING | _YES | _NO | {"=", "<<"}

# Numbers that every parser reads alike and writes again as they are, up to zeros at the end: those that a double
# holds, for that is what Helm and JavaScript make of them.
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,14}", re.ASCII)
_DECIMAL = re.compile(r"-?(?=[0-9.]{3,16}$)(0|[1-9][0-9]*)\.[0-9]{1,6}", re.ASCII)

# What at least one parser takes for a number or a date, once it has dropped every "_".
_UNCLEAR = re.compile(
    r"""
    [-+]? [0-9]+ (:[0-5]?[0-9])* (\.[0-9]*)? ([eE][-+]?[0-9]+)?   # 010, 1_000, 22:30, 1e3, 5.
    | [-+]? \.[0-9]+ ([eE][-+]?[0-9]+)?                          # .5
    | [-+]? 0([xX][0-9a-fA-F]* | [oO][0-7]* | [bB][-+]?[01]*)    # 0x1F, 0o17, 0b1
    | [-+]? \.(inf|Inf|INF) | \.(nan|NaN|NAN)
    | [0-9]{4}-[0-9]{1,2}-[0-9]{1,2} ([Tt\ \t].*)?               # 2026-11-21
    """,
    re.VERBOSE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class AmbiguousScalar:
    """A scalar that says nothing, or that not every parser reads alike."""

    text: str

    @property
    def is_nothing(self) -> bool:
        """Whether it is an empty value or a null."""
        return self.text in _NOTHING

    @property
    def truth(self) -> bool | None:
        """The truth value that some parsers read, or None."""
        return True if self.text in _YES else False if self.text in _NO else None


def resolve(text: str) -> str | int | float | bool | AmbiguousScalar:
    """Return what a plain scalar means."""
    if text in _WORDS:
        return AmbiguousScalar(text)
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if text[0] not in "0123456789+-.":
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        return float(text)
    return AmbiguousScalar(text) if _UNCLEAR.fullmatch(text.replace("_", "")) else text
