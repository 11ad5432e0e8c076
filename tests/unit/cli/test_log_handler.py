"""Log messages on standard error."""

from __future__ import annotations

import pytest

from tfk8s.cli import log_handler
from tfk8s.log import log


def test_warnings_have_the_name_of_the_program(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "handlers", [])
    for _ in range(2):
        log_handler.install()
    log.warning("%s was lost: 100 %% gone", "worker/1")
    log.info("Step 1/2")
    log.debug("nothing")
    assert capsys.readouterr().err == "tfk8s: worker/1 was lost: 100 % gone\nStep 1/2\n"
