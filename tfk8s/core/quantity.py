"""Kubernetes quantities: `500m`, `2`, `4Gi`.

The syntax is that of k8s.io/apimachinery/pkg/api/resource: a decimal number and a suffix, binary
(Ki Mi Gi Ti Pi Ei) or decimal (n u m "" k M G T P E), or an exponent (e3, E3).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal

SYNTAX = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?[0-9]{1,3})?")
_BINARY = {suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_DECIMAL = {
    suffix: Decimal(10) ** (3 * power)
    for power, suffix in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), -3)
}
_SCALE_DIGITS = 19  # of 1024 ** 6, the longest scale: a product of this precision is exact


@dataclass(frozen=True, slots=True)
class Quantity:
    """An amount, as text and as a number.

    Attributes:
        text: the text in the job file, such as "4Gi".
        value: the number of cores or bytes.
    """

    text: str
    value: Decimal

    @classmethod
    def parse(cls, text: str) -> Quantity:
        """Parse a quantity.

        Raises:
            ValueError: the text is not a quantity, or the quantity is negative.
        """
        match = SYNTAX.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a quantity")
        number, suffix = match.group(1), match.group(2) or ""
        if suffix in _BINARY:
            scale = _BINARY[suffix]
        elif suffix in _DECIMAL:
            scale = _DECIMAL[suffix]
        else:
            scale = Decimal(f"1{suffix}")
        return cls(text, Context(prec=len(number) + _SCALE_DIGITS).multiply(Decimal(number), scale))

    def __add__(self, other: Quantity) -> Quantity:
        """Return the sum in whole bytes or cores, with the largest of the suffixes Gi and Mi that loses nothing."""
        total = int((self.value + other.value).to_integral_value(ROUND_CEILING))
        suffix = next((suffix for suffix in ("Gi", "Mi") if total % int(_BINARY[suffix]) == 0), "")
        return Quantity.parse(f"{total // int(_BINARY.get(suffix, 1))}{suffix}")

    def __str__(self) -> str:
        return self.text
