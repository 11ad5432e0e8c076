"""Runs every command of the documentation and of the help on the fake backend, in the order of each page.

Real clusters run some pages again (`documented_commands.REAL`, tests/local/training/test_pages.py), and compare their
output.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from documented_commands import PAGES, REAL, ROOT, PageCommand, help_commands, page_commands
from fakes.command_line import Run
from tfjobs import TFJOB

from tfk8s.jobfile.loader import loads
from tfk8s.testing import FakeBackend, use_backend

pytest_plugins = ("fakes.command_line",)

# Commands that this test does not run, and the reason or the test that does: the beginning of a command, after its page
# if the entry is for that page alone.
ELSEWHERE = {
    "SECURITY.md: cosign": "`make sign` signs and verifies",
    ". .venv/bin/activate": "a shell's own command",
    "README.md: cd tfk8s": "a shell's own command",
    "README.md: git clone": "needs the repository",
    "README.md: make demo": ".ci/run runs it first",
    "README.md: make test": ".ci/run runs it",
    "POOL=": "a shell's own command",
    "cat": "shows a file that the page gives",
    "docker run": "needs a Docker engine; `tfk8s image build` runs the images, in .ci/run",
    "docs/helm.md: tfk8s down": "tests/cluster/test_release.py has a cluster of Helm's",
    "TF_CONFIG=": "the way without tfk8s",
    "gcloud": "needs a Google account",
    "helm": "tests/cluster/test_release.py installs and tests the chart",
    "kind create": ".ci/run creates a kind cluster from kind-config.yaml",
    "kubectl apply": "tests/cluster/test_life.py applies manifests",
    "kubectl label podmonitor": "kube-prometheus-stack is not here",
    "kubectl create": "tests/cluster/test_refusals.py has users with the Roles",
    "export OTEL_EXPORTER_OTLP_ENDPOINT": "tests/unit/features/test_spans.py sets the variable",
    "pip install": "tests/local/test_distribution.py builds the wheel; `make release` installs it",
    "python": "no command of tfk8s: tests/local/training/test_examples.py runs the examples",
    "source": "a shell's own command",
    "tfk8s connect": "tests/local/test_commands.py connects",
    "tfk8s dashboard": "tests/dashboard, with a browser",
    "tfk8s doctor": "tests/unit/features/test_doctor.py and tests/cluster/test_doctor.py",
    "tfk8s submit --watch": "tests/local/test_watch.py",
    "tfk8s diff mnist@": "tests/unit/features/test_history.py",
    "tfk8s events mnist@": "tests/unit/features/test_history.py",
    "tfk8s history --bucket": "tests/unit/backends/test_bucket_reader.py",
    "tfk8s history --claim": "tests/cluster/test_shared_history.py",
    "tfk8s history --shared": "tests/cluster/test_shared_history.py",
    "tfk8s image": "tests/unit/features/test_images.py, and .ci/run",
    "tfk8s kind": "tests/cluster/test_kind.py",
    "tfk8s logs mnist@": "tests/unit/features/test_history.py",
    "tfk8s notebook": "tests/local/test_notebook.py",
    "tfk8s render cluster.yaml --format podmonitor": "tests/unit/cli/test_job_file.py, with `metrics` in the job file",
    "tfk8s stacks mnist script": "tests/unit/features/test_stacks.py",
    "tfk8s status --watch": "tests/unit/cli/test_inspect.py",
    "tfk8s status mnist@": "tests/unit/features/test_history.py",
    "tfk8s top --watch": "tests/unit/features/test_top.py",
    "tfk8s tensorboard": "tests/local/test_tensorboard.py",
    "uv ": "`make release` installs the wheel, tests/versions makes environments with uv",
}

# Outputs of scripts and of live clusters, which this test can't compare, and the tests that do.
OUTPUTS_ELSEWHERE = {
    "docs/commands.md": "tests/unit/features/test_stacks.py",
    "docs/distribute.md": "tests/local/training/test_pages.py",
    "docs/kubernetes.md": "tests/cluster/test_examples.py",
    "docs/programs.md": "tests/unit/cli/test_inspect.py",
    "docs/sessions.md": "tests/local/training/test_pages.py",
    "docs/tensorflow2.md": "tests/local/training/test_pages.py",
    "docs/timeline.md": "tests/local/test_timeline.py",
    "examples/between_graph/README.md": "tests/local/training/test_examples.py",
    "examples/data_parallel/README.md": "tests/local/training/test_examples.py",
    "examples/evaluator/README.md": "tests/local/training/test_examples.py",
    "examples/keras/README.md": "tests/local/training/test_examples.py",
    "examples/multi_worker_mirrored/README.md": "tests/local/training/test_replicas.py",
    "examples/preemption/README.md": "tests/local/training/test_replicas.py",
    "examples/recover/README.md": "tests/local/training/test_recover.py",
}

# Commands whose whole output tfk8s makes, the same on the fake backend.
OWN_OUTPUT = ("tfk8s down", "tfk8s init", "tfk8s render", "tfk8s up", "tfk8s validate")

_NAMED_FILE = re.compile(r"```yaml\n(# ([\w.]+\.yaml).*?)```", re.DOTALL)
HEAD = "apiVersion: tfk8s.dev/v1\nname: {}\nimage: tensorflow/tensorflow:2.21.0\njobs:\n"
MNIST = HEAD.format("mnist") + "  chief: 1\n  ps: 2\n  worker: 4\n  evaluator: {program: [python3, -m, evaluate]}\n"
# The cluster "mnist" runs at first, but not for those that start it.
STARTS_MNIST = (
    "docs/tfjob.md", "help: tfk8s run --local cluster.yaml", "help: tfk8s run --get evaluator/0:model cluster.yaml",
)  # fmt: skip
SCRIPTS = ("train.py", "script.py", "old_script.py", "replica.py", "mnist_replica.py")
# Files that the pages have in their folder, beside those of this repository: by page, or for all pages.
FILES = {
    "": {"cluster.yaml": MNIST, "job.yaml": MNIST, "tfjob.yaml": TFJOB, "explore.ipynb": "{}", "data.csv": "1\n"},
    "docs/job-file.md": {
        "cluster.yaml": (ROOT / "examples/tutorial/cluster.yaml").read_text(),
        "job.yaml": "apiVersion: tfk8s.dev/v1\nname: mnist\njobs:\n  my-job: 2\n",
    },
    "docs/tensorboard.md": {"tensorboard.txt": "tensorboard==2.21.0\n"},
}
COMMANDS: dict[str, list[PageCommand]] = {}
for command in (*(command for page in PAGES for command in page_commands(page)), *help_commands()):
    COMMANDS.setdefault(command.page, []).append(command)


def elsewhere(command: PageCommand) -> str:
    """Return the entry of ELSEWHERE for a command, or ""."""
    return next((key for key in ELSEWHERE if f"{command}".startswith(key) or command.text.startswith(key)), "")


def steps(command: PageCommand) -> Iterator[PageCommand]:
    """Yield the programs that a line of a shell runs."""
    for text in re.split(r" (?:&&|\|) |<\(", command.text):
        yield PageCommand(command.page, text.partition(" > ")[0].rstrip(")"), command.output)


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A page, and a current folder with the files that it names: the repository's, and those that the page shows."""
    monkeypatch.chdir(tmp_path)
    for name in ("examples", "helm"):
        (tmp_path / name).symlink_to(ROOT / name)
    write_scripts(tmp_path)
    page = str(request.param)
    shown = _NAMED_FILE.findall((ROOT / page).read_text()) if page.endswith(".md") else []
    for name, text in {**FILES[""], **FILES.get(page, {}), **{name: text for text, name in shown}}.items():
        (tmp_path / name).write_text(text)
    return page


def write_scripts(folder: Path) -> None:
    for name in SCRIPTS:
        shutil.copy(ROOT / "examples/between_graph/replica.py", folder / name)


@pytest.mark.parametrize("prepared", COMMANDS, indirect=True)
def test_commands_run(prepared: str, run: Run) -> None:
    running = [] if prepared in STARTS_MNIST else [loads(MNIST, "cluster.yaml")]
    with use_backend(FakeBackend(*running)):
        for command in (step for line in COMMANDS[prepared] for step in steps(line)):
            if not elsewhere(command):
                check(command, run)


def remove_own_job_file() -> None:
    """Remove cluster.yaml, which `init` does not replace, unless it is the page's: a reader would have it, too."""
    file = Path("cluster.yaml")
    if file.exists() and file.read_text() == MNIST:
        file.unlink()


def check(command: PageCommand, run: Run) -> None:
    program, *words = shlex.split(command.text)
    if program == "cd":  # a folder with scripts, and no job file
        Path(words[0]).mkdir()
        write_scripts(Path(words[0]))
        os.chdir(words[0])  # `prepared` goes back
        return
    assert program == "tfk8s", f"{command}: run it, or name in ELSEWHERE what does"
    if words[0] == "init":
        remove_own_job_file()
    code, out, err = run(*words)
    expected = 2 if command.output.startswith("error") else 0
    assert code in ((0, 1) if words[0] == "diff" else (expected,)), f"{command}\n{err}"
    if command.output and command.text.startswith(OWN_OUTPUT):
        assert command.output in {text.rstrip("\n") for text in (out, err, out + err)}, f"{command}\n{out}{err}"
    elif command.output:
        assert {command.page} & {*REAL, *OUTPUTS_ELSEWHERE}, f"{command}: nothing compares the output"


def test_commands_stand_in_console_blocks() -> None:
    block = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
    for page in PAGES:
        for language, text in block.findall(page.read_text()):
            assert language in ("", "console", "python", "text", "yaml"), f"{page}: {language}"
            assert language == "console" or not re.search(r"^ *\$ ", text, re.MULTILINE), f"{page}: {text}"


def test_no_entry_is_superfluous() -> None:
    lines = [step for commands in COMMANDS.values() for line in commands for step in steps(line)]
    assert set(ELSEWHERE) - set(map(elsewhere, lines)) == set()
    assert [page for page in (*REAL, *OUTPUTS_ELSEWHERE) if page not in COMMANDS] == []


def test_named_tests_exist() -> None:
    paths = [path for reason in (*ELSEWHERE.values(), *OUTPUTS_ELSEWHERE.values()) for path in reason.split()]
    assert [path for path in paths if path.startswith("tests/") and not (ROOT / path.strip(",;")).exists()] == []


def test_a_command_or_an_example_has_one_output_on_all_pages() -> None:
    seen: dict[str, PageCommand] = {}
    for command in (command for commands in COMMANDS.values() for command in commands if command.output):
        for text in (command.text, command.text.rpartition(" examples/")[2]):
            other = seen.setdefault(text, command)
            assert other.output == command.output, f"{command}, {other.page}"


def test_outputs_of_real_pages_are_compared() -> None:
    pages = [page for page, test in OUTPUTS_ELSEWHERE.items() if test == "tests/local/training/test_pages.py"]
    compared = {command.text for page in REAL for command in COMMANDS[page] if command.output}
    shown = [command for page in pages for command in COMMANDS[page] if command.output and not elsewhere(command)]
    assert [f"{command}" for command in shown if command.text not in compared] == []
