"""Runs the examples that test_pages.py does not run as their README says, and compares what they learn."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import between_graph
import pytest
from clusters import REPOSITORY, running, start_tfk8s, tfk8s
from documented_commands import REAL, ROOT, page_commands, page_output
from expected_output import REMOTE_GPU_WITHOUT_ONE, costs

EXAMPLES = REPOSITORY / "examples"
TUTORIAL = EXAMPLES / "tutorial"
BETWEEN_GRAPH = EXAMPLES / "between_graph"
MODULES = {"network.py", "model.py"}
COMPARE = EXAMPLES / "data_parallel" / "compare.py"
LADDER = dict(re.findall(r'^    "(\w+\.py)": \("([^"]+)"', COMPARE.read_text(), re.MULTILINE))  # names, by script


@pytest.fixture(scope="module")
def tutorial() -> Iterator[str]:
    with running(TUTORIAL / "cluster.yaml"):
        yield "tutorial"


def submit(name: str, script: Path, *arguments: object, **options: object) -> str:
    """Run a TensorFlow 1 script on a running cluster; return what it printed."""
    done = tfk8s("submit", "--local", "--tf1", name, script, *arguments, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_remote_gpu_prints_its_device(tutorial: str) -> None:
    output = submit(tutorial, TUTORIAL / "remote_gpu.py")
    if "has no GPU" in output:
        assert output == REMOTE_GPU_WITHOUT_ONE
    else:
        assert "square ran on /job:local/replica:0/task:0/device:GPU:0\n" in output


def test_evaluator_measures_the_last_checkpoint(tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLES / "evaluator", tmp_path / "evaluator")
    file = folder / "cluster.yaml"
    file.write_text(file.read_text().replace("/tmp/evaluated", str(tmp_path)))
    done = tfk8s("run", "--local", file, timeout=120)
    assert done.returncode == 0, done.stderr
    measured, expected = (
        re.findall(r"evaluator/0 \| after step 200: loss (.*)", text)
        for text in (done.stdout, (folder / "README.md").read_text())
    )
    assert [float(loss) for loss in measured] == pytest.approx([float(loss) for loss in expected], rel=1e-2)


def test_data_parallel_learns_as_its_page_shows() -> None:
    folder = EXAMPLES / "data_parallel"
    done = tfk8s("run", "--local", folder / "cluster.yaml", "--tf1", folder / "fused.py", timeout=120)
    assert done.returncode == 0, done.stderr
    shown = costs(page_output("examples/data_parallel/README.md", "tfk8s run"))
    seen = costs(done.stdout)
    assert {step: seen[step] for step in shown} == pytest.approx(shown, rel=1e-2)


def test_the_ladder_of_data_parallelism(tmp_path: Path) -> None:
    picture = tmp_path / "curves.png"
    done = subprocess.run(
        [sys.executable, COMPARE, picture, "--steps=201", "--batch=32"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
    losses = defaultdict(list)
    for row in csv.DictReader(picture.with_suffix(".csv").read_text().splitlines()):
        losses[row["method"]].append(float(row["loss"]))
    for script, name in LADDER.items():
        assert re.search(rf"^{name}( +[\d.,]+){{5}}$", done.stdout, re.MULTILINE), script
        assert losses[name][200] < 0.01 < losses[name][0]
    for name in ("naive", "input on the workers", "fused", "many steps a run", "MultiWorkerMirroredStrategy"):
        assert losses[name][:201:100] == pytest.approx(losses["one process"][::100], rel=1e-3), name


def test_keras_trains_on_two_workers_as_in_one_process() -> None:
    keras = EXAMPLES / "keras"
    with running(keras / "cluster.yaml"):
        done = tfk8s("submit", "--local", "keras", keras / "fit.py", timeout=120)
        alone = tfk8s("submit", "--local", "keras", keras / "fit.py", "--alone", timeout=120)
    assert (done.returncode, alone.returncode) == (0, 0), done.stderr + alone.stderr
    assert done.stdout.startswith("replicas: 2\nepoch 0: loss ")
    assert alone.stdout.startswith("replicas: 1\nepoch 0: loss ")
    together, separate, shown = (
        [float(word) for word in re.findall(r"\d\.\d+", text)]
        for text in (done.stdout, alone.stdout, page_output("examples/keras/README.md", "tfk8s run"))
    )
    assert together == pytest.approx(separate, abs=0.0002)
    assert together == pytest.approx(shown, rel=1e-2)


def test_between_graph_programs_share_the_variables_of_the_ps() -> None:
    def submit(*arguments: str) -> subprocess.Popen[str]:
        script = BETWEEN_GRAPH / "replica.py"
        return start_tfk8s("submit", "--local", "--tf1", "between-graph", script, *arguments, "--train_steps=100")

    with running(BETWEEN_GRAPH / "cluster.yaml"):
        ps = between_graph.start(submit, "ps", 0)
        assert 100 <= sum(between_graph.train(submit)) <= 104  # up to two more steps a worker: its count is stale
        assert between_graph.train(submit, "--sync_replicas") == (100, 100)
    assert between_graph.ended(ps) == (0, "ps 0 ends\n")


def test_between_graph_programs_of_the_tasks_find_their_addresses_in_flags() -> None:
    done = tfk8s("run", "--local", BETWEEN_GRAPH / "programs.yaml")
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^worker/\d \| worker \d: \d+ steps, accuracy 1\.00$", done.stdout, re.MULTILINE)) == 2


def test_every_example_has_a_test() -> None:
    here = Path(__file__).read_text() + (Path(__file__).parent / "test_recover.py").read_text()
    here += "".join(command.text for page in REAL for command in page_commands(ROOT / page))
    jobs = "".join(file.read_text() for file in EXAMPLES.glob("*/cluster.yaml"))
    for script in EXAMPLES.glob("*/*.py"):
        run = script.name in here or script.name in LADDER or f"program: [{script.name}]" in jobs
        assert run or script.name in MODULES, f"{script} is run by no test"
    listed = subprocess.run(
        ["git", "status", "--porcelain", "examples"], capture_output=True, text=True, cwd=REPOSITORY, check=True
    )
    assert "__pycache__" not in listed.stdout
