"""The meaning of YAML scalars without quotes, on which all parsers agree.

YAML 1.1 (PyYAML, and Go's parsers: Helm, kubectl) and YAML 1.2 differ. Some parsers read `yes`, `010`, `1e3`, `22:30`
or `1_000` as a boolean, a number or a duration, and others as text. `resolve` returns such a scalar as an
`AmbiguousScalar`; the type that is expected then suggests an unambiguous spelling.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_YES = frozenset({"y", "Y", "yes", "Yes", "YES", "on", "On", "ON"})
_NO = frozenset({"n", "N", "no", "No", "NO", "off", "Off", "OFF"})
_WORDS = _NULL | _YES | _NO | {"=", "<<"}

# Numbers that every parser reads and writes alike, up to zeros at the end. Helm and JavaScript convert numbers to
# doubles, so these are the numbers that a double holds.
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,14}", re.ASCII)
_DECIMAL = re.compile(r"-?(?=[0-9.]{3,16}$)(0|[1-9][0-9]*)\.[0-9]{1,6}", re.ASCII)

# Texts that at least one parser reads as a number or a date, after it has dropped every "_".
_AMBIGUOUS = re.compile(
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
    """A scalar that is empty or null, or that parsers read differently."""

    text: str

    @property
    def is_null(self) -> bool:
        """True if the scalar is empty or a null."""
        return self.text in _NULL

    @property
    def boolean(self) -> bool | None:
        """The boolean that some parsers read, or None."""
        return True if self.text in _YES else False if self.text in _NO else None


def resolve(text: str) -> str | int | float | bool | AmbiguousScalar:
    """Return the meaning of a plain scalar."""
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
    return AmbiguousScalar(text) if _AMBIGUOUS.fullmatch(text.replace("_", "")) else text
