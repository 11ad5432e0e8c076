from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfk8s.core.quantity import Quantity

# From k8s.io/apimachinery/pkg/api/resource, each as a power of a base.
SUFFIXES = {
    "n": (10, -9), "u": (10, -6), "m": (10, -3), "": (10, 0), "k": (10, 3), "M": (10, 6), "G": (10, 9), "T": (10, 12),
    "P": (10, 15), "E": (10, 18), "Ki": (2, 10), "Mi": (2, 20), "Gi": (2, 30), "Ti": (2, 40), "Pi": (2, 50),
    "Ei": (2, 60), "e3": (10, 3), "E-2": (10, -2), "e+10": (10, 10),
}  # fmt: skip


@given(st.integers(0, 10**40), st.none() | st.integers(0, 10**40), st.sampled_from(sorted(SUFFIXES)))
def test_values_are_exact(whole: int, fraction: int | None, suffix: str) -> None:
    number = str(whole) if fraction is None else f"{whole}.{fraction}"
    base, power = SUFFIXES[suffix]
    quantity = Quantity.parse(number + suffix)
    assert Fraction(quantity.value) == Fraction(number) * Fraction(base) ** power
    assert quantity.text == str(quantity) == number + suffix


FORMS = [("500m", "0.5"), (".5", "0.5"), ("2.", "2"), ("4Gi", "4294967296"), ("1E", "1e18"), ("1E1", "10")]


def test_forms() -> None:
    for text, value in FORMS:
        assert Quantity.parse(text).value == Decimal(value), text


INVALID = [
    "", ".", "-1", "+1", "4GB", "4gi", "4 Gi", "1e", "1e1000", "1_000", "0x10", "1.5.2", "Gi", "1\n", "\u0661", "4K"
]  # fmt: skip


def test_invalid_quantities() -> None:
    for text in INVALID:
        with pytest.raises(ValueError) as caught:
            Quantity.parse(text)
        assert str(caught.value) == f"{text!r} is not a quantity", text
