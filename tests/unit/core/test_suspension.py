"""The wish that a cluster is suspended, as an annotation or a file has it."""

from __future__ import annotations

import pytest

from tfk8s.backends import suspended
from tfk8s.core.lifetime import Suspension
from tfk8s.errors import ClusterError

WISH = Suspension(1_700_000_000.0, "jo", {"worker": 2})


def test_the_text_brings_the_wish_back() -> None:
    assert Suspension.parse(WISH.to_text()) == WISH


@pytest.mark.parametrize(
    "text",
    [
        "", "1", "[]", "{}", '{"since": 1, "by": "jo"}', '{"since": "1", "by": "jo", "tasks": {}}',
        '{"since": NaN, "by": "jo", "tasks": {}}', '{"since": 1e300, "by": "jo", "tasks": {}}',
        '{"since": -1, "by": "jo", "tasks": {}}', '{"since": 1, "by": "jo", "tasks": {"worker": 0}}',
        '{"since": 1, "by": "jo", "tasks": {"worker": "2"}}', '{"since": 1, "by": 2, "tasks": {}}',
    ],
)  # fmt: skip
def test_the_text_of_somebody_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no suspension|Expecting value"):
        Suspension.parse(text)


def test_a_long_name_is_cut() -> None:
    assert len(Suspension.parse(WISH._replace(by="x" * 1000).to_text()).by) == 64


def test_the_words() -> None:
    sentence = 'cluster "mnist" is suspended since 2023-11-14T22:13:20Z by jo'
    assert suspended.reason("mnist", WISH, " --local") == f"{sentence}: tfk8s resume --local mnist"
    suspended.require_awake("mnist", None, "")
    with pytest.raises(ClusterError) as caught:
        suspended.require_awake("mnist", WISH, " -n ml")
    assert (str(caught.value), caught.value.help) == (sentence, "tfk8s resume -n ml mnist")
