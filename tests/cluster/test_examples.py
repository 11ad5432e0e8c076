"""Every example, unmodified, with the results that it has on this machine.

Of the job files only the image differs, and `cpu`, so that all fit on a node of two cores at once.

compare.py starts clusters on this machine, so two rungs of its ladder are compared here.
"""

import contextlib
from dataclasses import replace
from pathlib import Path

import between_graph
import pytest
from expected_output import DATA_SERVICE, PARAMETER_SERVER, REMOTE_GPU_WITHOUT_ONE, TUTORIAL, costs
from on_cluster import IMAGE, start_tfk8s

import tfk8s
from tfk8s.cluster.handle import Cluster
from tfk8s.cluster.readiness import wait_until_ready
from tfk8s.cluster.scripts import make_script, run_here
from tfk8s.core.quantity import Quantity
from tfk8s.errors import NoSuchCluster

EXAMPLES = Path(__file__).parents[2] / "examples"

# As when a script saves its variables: an operation of a ps takes its input from the script.
FETCH_FROM_SCRIPT = """
import tensorflow as tf
tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
@tf.function
def add():
    with tf.device("/job:chief/replica:0/task:0/device:CPU:0"):
        one = tf.strings.to_number(tf.strings.as_string(tf.random.uniform([], 1, 2, tf.int32)))
    with tf.device("/job:ps/replica:0/task:0/device:CPU:0"):
        return one + 2
print(add().numpy())
"""
# Reaches another task, in a process that the script starts, too.
SESSION = """
import multiprocessing
import tensorflow as tf, tfk8s

def compute(_):
    graph = tf.Graph()
    with graph.as_default(), tf.device("/job:local/task:1"):
        y = tf.constant(236) + 2
    with tfk8s.session(graph=graph) as session:
        return session.run(y)

if __name__ == "__main__":
    assert multiprocessing.get_context("spawn").Pool(1).map(compute, [0]) == [238]
    print(compute(0))
"""
PATIENCE = 240  # seconds for a script, on a machine that does much else; more than `submit` itself has


def load(path):
    job_file = tfk8s.load(EXAMPLES / path)
    jobs = tuple(replace(job, cpu=Quantity.parse("50m")) for job in job_file.jobs)
    return replace(job_file, image=IMAGE, jobs=jobs)


@pytest.fixture
def make_up(backend):
    """Makes an example's cluster; returns its name.

    A server has 112 threads, and the node of kind under podman allows 2048: clusters do not stay for later tests.
    """
    with contextlib.ExitStack() as clusters:
        yield lambda path: clusters.enter_context(up(backend, path))


@pytest.fixture(scope="module")
def tutorial(backend):
    with up(backend, "tutorial/cluster.yaml") as name:
        yield name


@contextlib.contextmanager
def up(backend, path):
    job_file = load(path)
    try:
        backend.apply(job_file)
        wait_until_ready(backend, job_file.name, PATIENCE)
        yield job_file.name
    finally:
        with contextlib.suppress(NoSuchCluster):
            backend.delete(job_file.name)


@pytest.fixture
def submit(namespace):
    """Submits scripts to a cluster at the same time; returns what each printed."""

    def submit(name, *scripts, flags=("--tf1",)):
        started = [start_tfk8s("submit", "--namespace", namespace, *flags, name, EXAMPLES / one) for one in scripts]
        printed = []
        for process in started:
            out, err = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, err
            printed.append(out)
        return printed

    return submit


def test_the_tutorial(submit, tutorial):
    names = [*TUTORIAL, "remote_gpu.py"]
    expected = {**TUTORIAL, "remote_gpu.py": REMOTE_GPU_WITHOUT_ONE}
    for first, second in zip(names[::2], [*names[1::2], None], strict=True):
        pair = [name for name in (first, second) if name]
        printed = submit(tutorial, *(f"tutorial/{name}" for name in pair))
        assert dict(zip(pair, printed, strict=True)) == {name: expected[name] for name in pair}


def test_the_tutorial_in_tensorflow_2(submit, tutorial):
    assert submit(tutorial, "modern/two_tasks.py", flags=()) == ["238\n"]


def test_the_job_by_another_name(submit, make_up):
    assert submit(make_up("tutorial/renamed.yaml"), "tutorial/two_tasks_renamed.py") == ["238\n"]


def test_data_parallel_learns_as_a_single_device_does(submit, make_up):
    name = make_up("data_parallel/cluster.yaml")
    single, parallel = map(costs, submit(name, "data_parallel/single.py", "data_parallel/fused.py"))
    assert parallel == pytest.approx(single, rel=1e-4)
    assert single[399] < 0.01 < single[1]


def test_parameter_server_strategy(submit, make_up, tmp_path):
    name = make_up("parameter_server/cluster.yaml")
    fetch = tmp_path / "fetch.py"
    fetch.write_text(FETCH_FROM_SCRIPT)
    assert submit(name, "parameter_server/train.py", fetch, flags=()) == [PARAMETER_SERVER, "3.0\n"]


def test_data_service(submit, make_up):
    name = make_up("data_service/cluster.yaml")
    assert submit(name, "data_service/train.py", flags=()) == [DATA_SERVICE]


def test_between_graph_programs_share_the_variables_of_the_ps(backend, namespace, make_up):
    name, script = make_up("between_graph/cluster.yaml"), EXAMPLES / "between_graph/replica.py"

    def submit(*arguments):
        return start_tfk8s("submit", "--namespace", namespace, "--tf1", name, script, *arguments, "--train_steps=100")

    ps = between_graph.start(submit, "ps", 0)
    assert between_graph.train(submit, "--sync_replicas") == (100, 100)
    backend.delete(name)
    assert between_graph.ended(ps) == (0, "ps 0 ends\n")


def test_submit_here_forwards_the_tasks_addresses(backend, tutorial, capfd, caplog):
    script = make_script(EXAMPLES / "tutorial/two_tasks.py", tf1=True)
    assert run_here(backend, tutorial, script) == 0
    assert (capfd.readouterr().out, caplog.messages) == ("238\n", [])


def test_sessions_of_tfk8s_here_use_the_tasks_addresses(backend, tutorial, tmp_path, capfd, caplog):
    path = tmp_path / "session.py"
    path.write_text(SESSION)
    assert run_here(backend, tutorial, make_script(path)) == 0
    assert (capfd.readouterr().out, caplog.messages) == ("238\n", [])


@pytest.mark.parametrize("make", ["tfk8s.strategy()", "tf.distribute.MultiWorkerMirroredStrategy()"])
def test_strategies_here_are_refused_with_a_reason(backend, tutorial, tmp_path, capfd, make):
    path = tmp_path / "strategy.py"
    path.write_text(f"import tensorflow as tf, tfk8s\n{make}")
    assert run_here(backend, tutorial, make_script(path)) == 2
    assert f"error: {make.partition('(')[0].removeprefix('tf.distribute.')}" in capfd.readouterr().err


def test_a_session_of_this_process(backend, tutorial):
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default(), tf.device("/job:local/task:1"):
        x = tf.compat.v1.placeholder(tf.int32, [])
        y = x + 236
    cluster = Cluster(backend, tutorial)
    with cluster.session(graph=graph) as session:
        assert session.run(y, {x: 2}) == 238
    cluster.close()
