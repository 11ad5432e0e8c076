"""The Python API: what `import tfk8s` gives."""

from __future__ import annotations

import pytest

import tfk8s
from tfk8s import errors


def test_every_public_name_exists() -> None:
    assert {name for name in tfk8s.__all__ if getattr(tfk8s, name) is None} == set()
    assert dir(tfk8s) == sorted(tfk8s.__all__)


def test_every_error_is_public() -> None:
    defined = {
        name for name, value in vars(errors).items() if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert defined - {"Problem"} <= set(tfk8s.__all__)


def test_unknown_names_raise_attribute_errors() -> None:
    with pytest.raises(AttributeError, match=r"^module 'tfk8s' has no attribute 'nope'$"):
        tfk8s.nope  # noqa: B018
