"""Runs the commands of pages on clusters of this machine, in order, and compares the output with the page's."""

from __future__ import annotations

import re
import shlex

import pytest
from clusters import REPOSITORY, running, tfk8s
from documented_commands import REAL, ROOT, page_commands

# These pages take a cluster that runs already, for speed. The others start theirs.
_TUTORIAL = [page for page in REAL if re.search("tutorial|modern", page)]
_GPU = "remote_gpu.py"  # prints something else on a machine with GPUs: test_examples.py runs it
# What differs from run to run, and what stands for it.
_VARYING = [
    (r"pid \d+ +", "pid N "),
    (r"\b(\d+[hm])?\d+(ms|[smh])\b", "T"),
    (r"\S+/tfk8s/(?=\w+\n)", "STATE/tfk8s/"),
    (r"//127\.0\.0\.1:", "//localhost:"),  # without a network namespace
    (r" +", " "),
]


def test_pages_with_the_cluster_of_the_tutorial() -> None:
    with running(REPOSITORY / "examples" / "tutorial" / "cluster.yaml"):
        for page in _TUTORIAL:
            compare(page)


@pytest.mark.parametrize("page", [page for page in REAL if page not in _TUTORIAL])
def test_pages(page: str) -> None:
    compare(page)


def compare(page: str) -> None:
    for command in page_commands(ROOT / page):
        if " --local " not in command.text or not command.output or _GPU in command.text:
            continue
        done = tfk8s(*shlex.split(command.text)[1:], timeout=120)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        expected = re.escape(same(f"{command.output}\n")).replace("…", "(?s:.*)")
        assert re.fullmatch(expected, same(done.stdout)), f"{command}\n{done.stdout}"


def same(output: str) -> str:
    """Return an output without what differs from run to run."""
    for pattern, replacement in _VARYING:
        output = re.sub(pattern, replacement, output)
    return re.sub(r" +$", "", output, flags=re.MULTILINE)
