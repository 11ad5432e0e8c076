"""The one exit to the terminal: no text of others moves its cursor."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfk8s.cli import output
from tfk8s.cli.error_report import report
from tfk8s.cli.log_handler import LogHandler
from tfk8s.errors import ClusterError

HOSTILE = "\x1b]0;PWNED\x07\x1b[2J\rok\x9b1A\u202edne"
SHOWN = "^[]0;PWNED^G^[[2J^Mok\\u009b1A\\u202edne"


def test_control_characters_show(capsys: pytest.CaptureFixture[str]) -> None:
    output.say(f"a\t{HOSTILE}\nb")
    output.note(HOSTILE)
    report(ClusterError(HOSTILE, help=HOSTILE))
    LogHandler().emit(logging.makeLogRecord({"msg": HOSTILE, "levelno": logging.INFO}))
    out, err = capsys.readouterr()
    assert out == f"a\t{SHOWN}\nb\n"
    assert err == f"{SHOWN}\nerror: {SHOWN}\n  = help: {SHOWN}\n{SHOWN}\n"


def test_lines_of_scripts_stay_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    output.say(HOSTILE, is_raw=True)
    output.note(HOSTILE, is_raw=True)
    assert capsys.readouterr() == (f"{HOSTILE}\n", f"{HOSTILE}\n")


def test_colours_of_others_show(capsys: pytest.CaptureFixture[str]) -> None:
    fake = "\x1b[1;31merror:\x1b[0m run this"
    output.say(output.table(("REASON",), [(fake,)]))
    report(ClusterError(fake, help=fake))
    LogHandler().emit(logging.makeLogRecord({"msg": fake, "levelno": logging.WARNING}))
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert out == "REASON\n^[[1;31merror:^[[0m run this\n"


def test_own_colours_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "has_colours", lambda _: True)
    codes = {*output._COLOURS.values(), *output._PREFIXES, "1;31"}
    for code in codes:
        painted = output.paint("x", code, None)  # type: ignore[arg-type]
        assert output.visible(painted) == painted


@given(st.text())
def test_json_keeps_its_meaning(text: str) -> None:
    document = json.dumps({"message": text}, ensure_ascii=False)
    assert json.loads(output.visible(document)) == {"message": text}
