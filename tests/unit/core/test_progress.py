"""The line of `tfk8s.progress`, and its meaning."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfk8s.cli import json_output
from tfk8s.core.progress import PREFIX, StepProgress, duration, latest, metric_text, parse


@pytest.mark.parametrize(
    ("progress", "text", "summary"),
    [
        (StepProgress(step=7), "7", "7"),
        (StepProgress(step=0, total=3), "0/3 (0%)", "0/3 (0%)"),
        (
            StepProgress(step=120, total=1000, rate=35.1, metrics={"loss": "0.31", "lr": "1e-05", "at": "late = bad"}),
            "120/1000 (12%), 35.1 steps/s, 25s left, loss=0.31, lr=1e-05, at=late = bad",
            "120/1000 (12%), 35.1 steps/s, 25s left",
        ),
        (StepProgress(step=4, total=4, rate=1.2e-05), "4/4 (100%), 1.2e-05 steps/s", "4/4 (100%), 1.2e-05 steps/s"),
        (StepProgress(step=5, total=4, rate=0.0), "5/4 (125%), 0 steps/s", "5/4 (125%), 0 steps/s"),
        (StepProgress(step=1, rate=1.23e7), "1, 1.23e+07 steps/s", "1, 1.23e+07 steps/s"),
    ],
)
def test_a_line_has_the_progress(progress: StepProgress, text: str, summary: str) -> None:
    assert (str(progress), progress.summary) == (text, summary)
    assert parse(f"{PREFIX}{text}\n") == progress


@pytest.mark.parametrize(
    ("step", "total", "line"),
    [
        (0, 3, "[--------------------] 0/3 (0%)"),
        (2, 3, "[#############-------] 2/3 (66%)"),
        (5, 3, "[####################] 5/3 (166%)"),
        (-1, 3, "[--------------------] -1/3 (-34%)"),
        (7, None, "tfk8s: step 7"),
    ],
)
def test_a_terminal_has_a_bar_if_the_total_is_known(step: int, total: int | None, line: str) -> None:
    assert StepProgress(step=step, total=total).terminal_line == line


@pytest.mark.parametrize("total", [0, -1])
def test_a_total_without_steps_is_none(total: int) -> None:
    assert str(StepProgress(step=5, total=total)) == "5"


def test_other_lines_have_none() -> None:
    assert [parse(text) for text in ("", "step 3", PREFIX, f"{PREFIX}x", f"{PREFIX}3 of 4")] == [None] * 5
    lines = ["a", f"{PREFIX}3", f"2026-11-22T10:17:03Z {PREFIX}4", "b"]
    assert latest(lines) == StepProgress(step=4)
    assert latest(["a"]) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.123456, "0.1235"),
        (12345678, "12345678"),
        (3.0, "3"),
        (float("nan"), "nan"),
        ("a, b\n c", "a b c"),
        ("\x1b[31mred", "[31mred"),
        (1e20, "1e+20"),
    ],
)
def test_metrics_are_short(value: object, text: str) -> None:
    assert metric_text(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0s"), (59.9, "59s"), (3600.0, "1h"), (200.0, "3m20s"), (90061, "1d1h")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


LIES = [
    "1, 1..2 steps/s", "9" * 5000, "1/" + "9" * 5000 + " (1%)", "1, 1e999 steps/s", "1/9 (1%), 1e-320 steps/s",
    "1, loss=" + "9" * 400, "1, x=1e999, y=nan", "1" + ", a=1" * 100_000, "1, 1e+-3 steps/s",
]  # fmt: skip


@pytest.mark.parametrize("rest", LIES, ids=lambda text: text[:20])
def test_a_lie_of_a_pod_is_no_error_and_no_infinity(rest: str) -> None:
    found = progress_of(f"tfk8s: step {rest}")
    json.dumps(found, allow_nan=False)


@given(st.text(st.sampled_from("0123456789/()%., =estpl-+naif"), max_size=60))
def test_each_line_has_a_progress_or_none(rest: str) -> None:
    json.dumps(progress_of(f"tfk8s: step 1{rest}"), allow_nan=False)


def progress_of(line: str) -> object:
    found = parse(line)
    return (str(found), found.bar(10), json_output.progress(found)) if found else None
