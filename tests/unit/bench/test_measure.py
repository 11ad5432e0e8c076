"""The statistics of bench/: pairs in turn, their ratios and spreads; and the processes that bench/ measures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import measure
import pytest
from measure import Bound, Spread, compare, take_turns

from tfk8s.backends.local import state


def test_each_way_runs_once_a_turn_and_the_first_comes_last_in_the_next() -> None:
    order: list[str] = []
    results = take_turns({name: lambda name=name: order.append(name) or len(order) for name in "abc"}, 3)
    assert "".join(order) == "abcbcacab"
    assert results == {"a": [1, 6, 8], "b": [2, 4, 9], "c": [3, 5, 7]}


def test_a_spread_has_the_median_and_both_ends() -> None:
    assert Spread.of([5.0, 1.0, 2.0]) == Spread(2.0, 1.0, 5.0)
    assert Spread.of([4.0, 1.0]) == Spread(2.5, 1.0, 4.0)


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [((1.0, 2.0), (1.5, 3.0), True), ((1.0, 2.0), (2.0, 3.0), True), ((1.0, 2.0), (2.1, 3.0), False)],
)
def test_two_spreads_overlap(one: tuple[float, float], other: tuple[float, float], overlap: bool) -> None:
    first, second = (Spread(sum(ends) / 2, *ends) for ends in (one, other))
    assert (first.overlaps(second), second.overlaps(first)) == (overlap, overlap)


def test_the_ratio_is_that_of_each_turn_not_of_the_medians() -> None:
    """The machine is four times slower in the last turn, for both ways."""
    comparison = compare("work", "other work", "s", [1.0, 2.0, 4.0], [2.0, 3.0, 8.0])
    assert (comparison.ours, comparison.theirs) == (Spread(2.0, 1.0, 4.0), Spread(3.0, 2.0, 8.0))
    assert (comparison.ratio, comparison.turns) == (Spread(0.5, 0.5, 2 / 3), 3)


def test_both_ways_have_a_figure_in_each_turn() -> None:
    with pytest.raises(ValueError, match="shorter"):
        compare("work", "other work", "s", [1.0, 2.0], [2.0])


@pytest.mark.parametrize(
    ("bound", "holds"),
    [
        (None, True),
        (Bound(highest=0.5), True),
        (Bound(highest=0.49), False),
        (Bound(lowest=0.51), False),
        (Bound(0.4, 0.6), True),
        (Bound(highest=1.0, unit="s"), True),
        (Bound(highest=0.9, unit="s"), False),
    ],
)
def test_a_bound_limits_the_ratio_or_the_median_of_tfk8s(bound: Bound | None, holds: bool) -> None:
    assert compare("work", "other work", "s", [1.0], [2.0], bound).holds is holds


@pytest.mark.programs
def test_the_memory_of_a_cluster_is_that_of_its_supervisor_and_all_below(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    counted: list[int] = []
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(measure, "pss", lambda pid: counted.append(pid) or 1.0)
    folder = state.folder("c")
    folder.path.mkdir(parents=True)
    folder.write_supervisor(os.getpid())
    with subprocess.Popen(["sleep", "60"]) as task:
        assert measure.cluster_memory("c") == len(counted)
        task.kill()
    assert {os.getpid(), task.pid} <= set(counted)


def test_a_process_that_has_ended_has_no_descendants() -> None:
    ended = 1 << 22  # the kernel's PID_MAX_LIMIT
    assert list(measure.descendants(ended)) == [ended]


@pytest.mark.programs
def test_workers_have_their_place_in_tf_config_and_end_after_use() -> None:
    with measure.workers(2, "sh", "-c", 'echo "$TF_CONFIG"; exec sleep 60') as processes:
        configs = [json.loads(process.stdout.readline()) for process in processes]
    cluster = {"worker": ["localhost:2222", "localhost:2223"]}
    assert configs == [{"cluster": cluster, "task": {"type": "worker", "index": index}} for index in range(2)]
    assert [process.poll() for process in processes] == [-signal.SIGKILL] * 2
