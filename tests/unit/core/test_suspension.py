"""The wish that a cluster is suspended, as an annotation or a file has it."""

from __future__ import annotations

import math

import pytest

from tfk8s.backends import suspended
from tfk8s.core.lifetime import Limits, Suspension
from tfk8s.errors import ClusterError

WISH = Suspension(1_700_000_000.0, "jo", {"worker": 2})


def test_the_text_brings_the_wish_back() -> None:
    assert Suspension.parse(WISH.to_text()) == WISH


@pytest.mark.parametrize(
    "text",
    [
        "", "1", "[]", "{}", '{"since": 1, "by": "jo"}', '{"since": "1", "by": "jo", "tasks": {}}',
        '{"since": NaN, "by": "jo", "tasks": {}}', '{"since": 1e300, "by": "jo", "tasks": {}}',
        '{"since": 1, "by": "jo", "tasks": {}, "idle": -1}', '{"since": 1, "by": "jo", "tasks": {}, "idle": "x"}',
        '{"since": -1, "by": "jo", "tasks": {}}', '{"since": 1, "by": "jo", "tasks": {"worker": 0}}',
        '{"since": 1, "by": "jo", "tasks": {"worker": "2"}}', '{"since": 1, "by": 2, "tasks": {}}',
    ],
)  # fmt: skip
def test_the_text_of_somebody_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no suspension|Expecting value"):
        Suspension.parse(text)


def test_a_long_name_is_cut() -> None:
    assert len(Suspension.parse(WISH._replace(by="x" * 1000).to_text()).by) == 64


def test_the_time_without_use_counts_from_the_last_use() -> None:
    assert WISH.quiet(1_700_000_060.0) == 60
    assert WISH._replace(idle=1800.0).quiet(1_700_000_060.0) == 1860
    assert WISH._replace(idle=1800.0).quiet(0.0) == 1800  # another machine's clock
    assert Suspension.parse('{"since": 1, "by": "jo", "tasks": {}}').idle == 0.0  # of an earlier tfk8s


def test_the_words_about_an_idle_cluster() -> None:
    sentence = 'cluster "mnist" is suspended since 2023-11-14T22:13:20Z, idle for 30m'
    assert suspended.why_unusable("mnist", WISH._replace(idle=1800.0)) == sentence


def test_the_words() -> None:
    sentence = 'cluster "mnist" is suspended since 2023-11-14T22:13:20Z by jo'
    assert suspended.reason("mnist", WISH, " --local") == f"{sentence}: tfk8s resume --local mnist"
    suspended.require_awake("mnist", None, "")
    with pytest.raises(ClusterError) as caught:
        suspended.require_awake("mnist", WISH, " -n ml")
    assert (str(caught.value), caught.value.help) == (sentence, "tfk8s resume -n ml mnist")


BY_IDLE = Suspension(1000.0, "tfk8s", idle=60.0)
BY_JO = Suspension(1000.0, "jo")
DURATION, UNUSED = "2h after its first `up` (max_duration)", "after 1h without a session and a script (idle)"


@pytest.mark.parametrize(
    ("limits", "wish", "end", "reason"),
    [
        (Limits(7200, None), BY_JO, 7200, DURATION),
        (Limits(7200, 3600, suspend=60), BY_IDLE, 4540, UNUSED),
        (Limits(4000, 3600, suspend=60), BY_JO, 4000, "4000s after its first `up` (max_duration)"),
        (Limits(None, 3600, suspend=60), BY_JO, 4600, UNUSED),
        (Limits(None, 3600), BY_JO, math.inf, ""),
        (Limits(None, None, suspend=60), BY_IDLE, math.inf, ""),
    ],
)
def test_the_first_limit_ends_a_suspended_cluster(limits: Limits, wish: Suspension, end: float, reason: str) -> None:
    """The first `up` is at 0."""
    assert suspended.end_of(limits, 0.0, wish) == end
    assert suspended.why_over(limits, 0.0, wish, min(end, 1e9) - 1) == ""
    assert suspended.why_over(limits, 0.0, wish, end) == reason
