"""The ways into a cluster, and what runs there: the table that docs/entries.md prints, and that the tests run."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from versions.page import item, table

PAGE = Path(__file__).parents[1] / "docs" / "entries.md"
WHOLE = os.environ.get("TFK8S_TEST_ENTRIES") == "all"  # `make test-entries`, else what the gate has time for

ENTRIES = {
    "submit": "`submit`",
    "fresh": "`--fresh`",
    "detach": "`--detach`",
    "here": "`--here`",
    "connect": "`connect`",
    "notebook": "notebook",
    "python": "Python",
    "program": "program",
}
USES = {
    "session": "`tf.compat.v1.Session`",
    "tf1": "`--tf1`",
    "tfk8s.session": "`tfk8s.session()`",
    "strategy": "`tfk8s.strategy()`",
    "parameter-server": "ParameterServerStrategy",
    "multi-worker": "MultiWorkerMirroredStrategy",
}


class Refusal(NamedTuple):
    """A refusal.

    Attributes:
        reason: as the page says it.
        words: a part of the error.
    """

    reason: str
    words: str


_PROCESS = Refusal(
    "The strategy needs its program in every task, and this is one process. Use a [program](programs.md), or "
    "`tfk8s.strategy()` in a session script",
    "MultiWorkerMirroredStrategy needs this program in every task, and ",
)
_HERE = Refusal(
    "The tasks can't connect to a script on your machine. Leave out `--here`",
    "tfk8s.strategy() does not work with --here: the tasks can't connect to a script on this machine",
)
_HERE_CONFIG = Refusal(
    "With `--here` there is no `TF_CONFIG`, since its addresses would be those of your machine. Leave out `--here`",
    "with --here there is no TF_CONFIG, because the tasks can't reach each other at the addresses of this machine",
)
_NO_CLUSTER = Refusal(
    "The process knows no tasks, and the tasks can't connect to it. Submit a script",
    "no cluster to train on: TFK8S_CLUSTER is not set",
)
_NO_CONFIG = Refusal(
    "The process has no `TF_CONFIG`. Submit a script",
    "ParameterServerStrategy needs a session script, which has a TF_CONFIG, and ",
)
# Of a process without `tfk8s.session(target)`.
ALONE = {
    "session": "session: 238.0",
    "multi-worker": "multi-worker: 119.0",
    "parameter-server": "Cluster spec must be non-empty in `tf.distribute.cluster_resolver.ClusterResolver`",
}

# The cells that are no "works".
REFUSED = {
    **dict.fromkeys([(entry, "multi-worker") for entry in ENTRIES if entry != "program"], _PROCESS),
    ("here", "strategy"): _HERE,
    ("here", "parameter-server"): _HERE_CONFIG,
    **dict.fromkeys([(entry, "strategy") for entry in ("connect", "notebook", "python")], _NO_CLUSTER),
    **dict.fromkeys([(entry, "parameter-server") for entry in ("connect", "notebook", "python")], _NO_CONFIG),
}

# ---- the page ------------------------------------------------------------------------------------------------------

_BEGIN = "<!-- tests/entries.py has the table. -->\n"
_END = "<!-- The end of the table. -->\n"


def page(text: str) -> str:
    """Return the page with the table in it."""
    before, rest = text.split(_BEGIN)
    return f"{before}{_BEGIN}{_table()}\n{_END}{rest.split(_END)[1]}"


def _table() -> str:
    reasons = list(dict.fromkeys(REFUSED[cell] for cell in _cells() if cell in REFUSED))
    rows = [[title, *(_cell(entry, use, reasons) for entry in ENTRIES)] for use, title in USES.items()]
    notes = [item(f"({number}) {refusal.reason}") for number, refusal in enumerate(reasons, 1)]
    return table(["", *ENTRIES.values()], rows) + "\n" + "".join(notes)


def _cells() -> list[tuple[str, str]]:
    return [(entry, use) for use in USES for entry in ENTRIES]


def _cell(entry: str, use: str, reasons: list[Refusal]) -> str:
    refusal = REFUSED.get((entry, use))
    if refusal is None:
        return "works"
    return f"no ({reasons.index(refusal) + 1})"


# ---- what the tests run --------------------------------------------------------------------------------------------

_SOURCES = {
    "session": """
import tensorflow as tf
with tf.Graph().as_default() as graph:
    with tf.device("/job:worker/task:1"):
        total = tf.constant(2.0) + 236.0
    with tf.compat.v1.Session(target) as session:
        print("session:", session.run(total))
""",
    "tf1": """
with tf.device("/job:worker/task:1"):
    total = tf.placeholder(tf.float32, []) + 236.0
with tf.Session(target) as session:
    print("tf1:", session.run(total, {total.op.inputs[0]: 2.0}))
""",
    "tfk8s.session": """
import tensorflow as tf
with tf.Graph().as_default() as graph, tf.device("/job:worker/task:1"):
    total = tf.constant(2.0) + 236.0
with open_session(graph=graph) as session:
    print("tfk8s.session:", session.run(total))
""",
    "strategy": """
import tensorflow as tf
strategy = tfk8s.strategy()
with strategy.scope():
    total = tf.Variable(118.0)
values = strategy.run(tf.function(lambda: total + 1.0))
print("strategy:", float(strategy.reduce("SUM", values, axis=None)))
""",
    "parameter-server": """
import tensorflow as tf
strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
with strategy.scope():
    total = tf.Variable(236.0)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
print("parameter-server:", float(coordinator.schedule(tf.function(lambda: total + 2.0)).fetch()))
""",
    "multi-worker": """
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
values = strategy.run(tf.function(lambda: tf.constant(119.0)))
print("multi-worker:", float(strategy.reduce("SUM", values, axis=None)))
""",
}
_SCRIPT = (
    "import os, tfk8s\ntarget = os.environ.get('TFK8S_TARGET')\n"
    "open_session = lambda **options: tfk8s.session(**options)\n"
)
OWN = ("connect", "python")  # their process is the user's
_SETUP = {
    "connect": "import functools, sys, tfk8s\ntarget = sys.argv[1]\n"
    "open_session = functools.partial(tfk8s.session, target)\n",
    "python": "import json, sys, tfk8s\ncluster = tfk8s.connect(sys.argv[1], **json.loads(sys.argv[2]))\n"
    "target, open_session = cluster.target, cluster.session\n",
}
# TensorFlow's servers wait for all tasks of their ClusterSpec, so a program with sessions starts its own server.
_SERVER = """
import json
import tensorflow as tf
config = json.loads(os.environ["TF_CONFIG"])
server = tf.distribute.Server(config["cluster"], config["task"]["type"], config["task"]["index"])
"""
SESSIONS = ("session", "tfk8s.session")
# TensorFlow can't connect to the tasks for two strategies in one process, and TensorFlow 1's behaviour has no way back.
GROUPS = (("session", "tfk8s.session", "multi-worker", "strategy"), ("parameter-server",), ("tf1",))
# Programs of TensorFlow 1 and of MultiWorkerMirroredStrategy have tests in other files, too.
PROGRAMS = (SESSIONS, ("strategy",), ("tf1",), ("parameter-server",), ("multi-worker",))
ALL = tuple(USES)


def source(entry: str, use: str) -> str:
    """Return the code of a cell of a notebook, or a part of a script."""
    names = "import tensorflow as tf\n"
    if entry in OWN:
        names = "import tensorflow.compat.v1 as tf\ntf.disable_v2_behavior()\n"
    return (names if use == "tf1" else "") + _SOURCES[use]


def plain() -> str:
    """Return a script at the address of `connect` that does not import tfk8s."""
    parts = [source("connect", use) for use in ALONE]  # the last ends the script, with TensorFlow's own error
    return "\n".join(["import sys", "target = sys.argv[1]", *parts])


def script(entry: str, uses: Iterable[str]) -> str:
    """Return a script that tries several uses one after another, and prints the result or the error of each.

    The error of a single use ends the script, as it would a user's.
    """
    uses = sorted(uses, key="tf1".__eq__)  # last
    setup = _SETUP.get(entry, _SCRIPT)
    if entry == "program" and {*uses} & {*SESSIONS, "tf1"}:
        setup += _SERVER
    if len(uses) == 1:
        return setup + source(entry, uses[0])
    texts = json.dumps({use: source(entry, use) for use in uses})
    return (
        f"{setup}for use, text in {texts}.items():\n    try:\n        exec(text)\n"
        "    except Exception as error:\n        print(f'{use}: {type(error).__name__}: {error}')\n"
    )


def require(entry: str, uses: Iterable[str], output: str) -> None:
    """Check that the output of a script is what the table says."""
    for use in uses:
        refusal = REFUSED.get((entry, use))
        words = f"{use}: 238.0" if refusal is None else refusal.words
        assert words in output, f"{entry}, {use}: no “{words}” in:\n{output}"
        if refusal is not None:
            assert not re.search(rf"^{use}: 238", output, re.MULTILINE)
