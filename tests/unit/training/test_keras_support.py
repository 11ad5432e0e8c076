"""The versions of Keras that `tfk8s.correct_keras` leaves alone; the corrections are in tests/local."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace

import pytest

import tfk8s


@pytest.mark.parametrize("version", ["3.16.0", "2.15.0", "3.1"])
def test_other_versions_of_keras_stay_as_they_are(
    version: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "keras", SimpleNamespace(__version__=version))
    with caplog.at_level(logging.WARNING, "tfk8s"):
        tfk8s.correct_keras()
    assert caplog.messages == [f"Keras {version} stays as it is: tfk8s.correct_keras() has corrections for Keras 3.15"]
