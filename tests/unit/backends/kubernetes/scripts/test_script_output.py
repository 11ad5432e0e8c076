"""The lines of a script's pod: apart on pipes, and with progress in place on a terminal."""

from __future__ import annotations

import contextlib
import io
import os
import sys

import pytest
from fakes.terminal import Terminal

from tfk8s.backends.kubernetes.scripts.script_output import ScriptOutput

LINES = [("epoch 1", False), ("tfk8s: step 1/2 (50%)", True), ("epoch 2", False), ("tfk8s: step 2/2 (100%)", True)]
STEPS = "tfk8s: step 1/2 (50%)\ntfk8s: step 2/2 (100%)\n"
BARS = (
    "\r[##########----------] 1/2 (50%)\x1b[K\r", "\r\x1b[K", "\r[##########----------] 1/2 (50%)\x1b[K\r",
    "\r[####################] 2/2 (100%)\x1b[K\r", "\n",
)  # fmt: skip


def test_progress_is_in_place_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((80, 5)))
    monkeypatch.setenv("TERM", "xterm")
    for out, err, in_place, texts in (
        (Terminal(), Terminal(), True, ("epoch 1\nepoch 2\n", "".join(BARS))),
        (Terminal(), Terminal(), False, ("epoch 1\nepoch 2\n", STEPS)),
        (io.StringIO(), io.StringIO(), True, ("epoch 1\nepoch 2\n", STEPS)),
        (io.StringIO(), Terminal(), True, ("epoch 1\nepoch 2\n", "".join((BARS[0], *BARS[3:])))),
    ):
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        with contextlib.closing(ScriptOutput(in_place=in_place)) as output:
            assert output.is_in_place == (isinstance(err, Terminal) and in_place)
            for text, is_error in LINES:
                output.write(f"{text}\n", is_error=is_error)
        assert (out.getvalue(), err.getvalue()) == texts


def test_parts_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((80, 5)))
    monkeypatch.setenv("TERM", "xterm")
    err = Terminal()
    monkeypatch.setattr(sys, "stderr", err)
    output = ScriptOutput()
    shown = []
    for text in ("a ", "tfk8s: step 1/2 (50%)\n", "tfk8s: st", "ep 1/2 (50%)\nx\n", "tfk8s: step two\n", "tf"):
        output.write(text, is_error=True)
        shown.append(err.getvalue())
        err.seek(0)
        err.truncate()
    output.close()
    bar, gone = BARS[0], BARS[1]
    assert shown == [
        "a ", "tfk8s: step 1/2 (50%)\n", "", f"{bar}{gone}x\n{bar}", f"{gone}tfk8s: step two\n{bar}", "",
    ]  # fmt: skip
    assert err.getvalue() == f"{gone}tf\n{bar}\n", "the last progress is below the text without an end"


@pytest.mark.parametrize("terminal", [True, False])
def test_streams_that_lack_a_character_get_a_question_mark(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(out, "isatty", lambda: terminal, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with contextlib.closing(ScriptOutput()) as output:
        output.write("✓ done\n", is_error=False)
    assert out.buffer.getvalue() == b"? done\n"
