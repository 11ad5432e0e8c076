"""The cluster that a script seems to need."""

from __future__ import annotations

import pytest

from tfk8s.errors import InvalidInput
from tfk8s.features.init.script_guess import Guess, guess

BETWEEN_GRAPH = """
flags.DEFINE_string("job_name", None, "ps or worker")
flags.DEFINE_string("ps_hosts", "localhost:2222", "addresses")
flags.DEFINE_string("worker_hosts", "localhost:2223,localhost:2224", "addresses")
ps_spec = FLAGS.ps_hosts.split(",")
cluster = tf.train.ClusterSpec({"ps": ps_spec, "worker": FLAGS.worker_hosts.split(",")})
server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
"""

ARGPARSE = """
parser.add_argument("--ps-hosts", type=str, default="")
parser.add_argument("--worker_hosts", default="a:1,b:1,c:1")
parser.add_argument("--task_hosts_file")
"""

COMPUTED = """
workers = [f"worker{i}.example.com:2222" for i in range(4)]
jobs = dict(worker=workers, ps=PS * 2 + ["c:1"], chief=os.environ["CHIEF"].split(","))
PS = ["a:1"]
tf.distribute.Server(tf.train.ClusterSpec(jobs), "worker", 0)
"""


GUESSES = [
    ("print(1)", Guess({"worker": 1})),
    ("'/job:worker/task:0' '/job:worker/task:3' \"/job:ps\"", Guess({"worker": 4, "ps": 1})),
    ("'/job:worker/replica:0/task:1/device:GPU:0'", Guess({"worker": 2})),
    ("'/job:localhost/replica:0/task:0/device:CPU:0'", Guess({"worker": 1})),
    ("'/job:worker/task:%d'", Guess({"worker": 2}, frozenset({"worker"}))),
    ("'/job:worker/task:99999999999'", Guess({"worker": 10000})),
    ("'grpc://127.0.0.1:2223' 'grpc://localhost:2224'", Guess({"worker": 1}, port=2223)),
    ('tf.compat.v1.Session("grpc://localhost:2225")', Guess({"worker": 1}, port=2225)),
    ('HOST = "localhost:2225"\ntf.Session(target="grpc://" + HOST)', Guess({"worker": 1}, port=2225)),
    ("tf.Session(config=c); tf.InteractiveSession(server.target); tf.Session(7)", Guess({"worker": 1})),
    (
        'HOST = "localhost:2225"\ntf.train.Server({"local": [HOST, "localhost:2226"]}, "local", 0)',
        Guess({"local": 2}, port=2225),
    ),
    (
        'ClusterSpec({"local": {0: "127.0.0.1:2224"}, "ps": 5, "w": "localhost:0"})',
        Guess({"local": 1, "ps": 1, "w": 1}, frozenset({"ps"}), port=2224),
    ),
    ('ClusterSpec({"local": ["localhost:2226"]}); tf.Session("grpc://localhost:2223")', Guess({"local": 1}, port=2223)),
    ("'grpc://localhost:99999'", Guess({"worker": 1})),
    ('tf.train.ClusterSpec({"local": ["localhost:2222", "localhost:2223"]})', Guess({"local": 2})),
    ('ClusterSpec({"worker": {1: "b:1", 3: "d:1"}, "ps": ("a:1",)})', Guess({"worker": 4, "ps": 1})),
    ('tf.distribute.Server({"worker": ["a:1"]}); \'/job:worker/task:%d\'', Guess({"worker": 2})),
    ("tf.distribute.ParameterServerStrategy(resolver)", Guess({"ps": 1, "worker": 2})),
    (BETWEEN_GRAPH, Guess({"ps": 1, "worker": 2})),
    (ARGPARSE, Guess({"ps": 1, "worker": 3}, frozenset({"ps"}))),
    (COMPUTED, Guess({"worker": 4, "ps": 3, "chief": 1}, frozenset({"chief"}))),
    ("a = b\nb = a\ntf.train.ClusterSpec(a)", Guess({"worker": 1})),
    (
        'ClusterSpec({"worker": ["a:1"] * 10**9, "1": ["a:1"], "ps": 5})',
        Guess({"worker": 1, "ps": 1}, frozenset({"worker", "ps"})),
    ),
]


def test_script_names_its_cluster() -> None:
    for script, found in GUESSES:
        assert guess("train.py", script.encode()) == found, script


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (b"print 'Python 2'", "line 1: Missing parentheses in call to 'print'. Did you mean print(...)?"),
        (b"\xff\xfe", "line 1: (unicode error) 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (b"(" * 1000, "line 1: too many nested parentheses"),
    ],
)
def test_other_files_are_refused(script: bytes, reason: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        guess("notes.txt", script)
    assert str(caught.value) == f'"notes.txt" is not a Python script: {reason}'
