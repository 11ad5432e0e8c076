"""Commands that read and write job files, and start nothing."""

from __future__ import annotations

import hashlib
import json
import shlex
from pathlib import Path

import pytest
import yaml
from fakes.command_line import Run
from tfjobs import TFJOB

from tfk8s.core.spec import Job
from tfk8s.features.init import template
from tfk8s.jobfile.loader import load
from tfk8s.render import package_files

pytest_plugins = ("fakes.command_line",)

BAD = """\
apiVersion: tfk8s.dev/v1
name: mnist
jobs: {my-job: 2}
"""


@pytest.fixture(autouse=True)
def _here(folder: Path) -> None:
    pass


# ---- validate, schema ----------------------------------------------------------------------------------------------


def test_validate(run: Run) -> None:
    assert run("validate", "mnist.yaml") == (
        0,
        'mnist.yaml is valid: cluster "mnist", tasks chief/0, worker/0 to worker/1, master chief/0\n',
        "",
    )


def test_validate_prints_the_problems_as_they_are(run: Run, folder: Path) -> None:
    (folder / "bad.yaml").write_text(BAD)
    code, out, err = run("validate", "bad.yaml")
    assert (code, out) == (2, "")
    assert err.startswith("error[bad-job-name]: ")
    assert "--> bad.yaml:3:8" in err


def test_validate_as_json(run: Run, folder: Path) -> None:
    (folder / "bad.yaml").write_text(BAD)
    code, out, err = run("validate", "bad.yaml", "-o", "json")
    found = json.loads(out)
    assert (code, err) == (2, "")
    assert (found["file"], found["valid"]) == ("bad.yaml", False)
    (problem,) = found["problems"]
    assert sorted(problem) == [
        "code",
        "column",
        "help",
        "label",
        "length",
        "line",
        "message",
        "option",
        "path",
        "source",
    ]
    assert (problem["code"], problem["path"], problem["line"]) == ("bad-job-name", "jobs.my-job", 3)
    code, out, _ = run("validate", "mnist.yaml", "-o", "json")
    assert (code, json.loads(out)) == (0, {"file": "mnist.yaml", "valid": True, "problems": []})


def test_options_set_values_of_the_job_file(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "of the shell")
    code, out, _ = run("validate", "mnist.yaml", "--set", "worker.tasks=5", "--env", "KEY")
    assert (code, "worker/0 to worker/4" in out) == (0, True)
    code, out, _ = run("render", "mnist.yaml", "--set", "image=ours:1", "--env", "KEY", "--env", "OTHER=x=y")
    assert code == 0
    for text in ("image: ours:1", "value: of the shell", "value: x=y"):
        assert text in out
    code, _, err = run("up", "--dry-run", "mnist.yaml", "--set", "worker.tasks=five")
    assert (code, "--> --set:1:14" in err) == (2, True)
    code, _, err = run("run", "--env", "NONE", "mnist.yaml", "train.py")
    assert (code, 'no environment variable "NONE"' in err) == (2, True)
    code, out, _ = run("validate", "mnist.yaml", "--set", "worker.tasks=five", "-o", "json")
    assert (code, json.loads(out)["problems"][0]["option"]) == (2, "--set")


def test_schema(run: Run) -> None:
    code, out, _ = run("schema")
    assert code == 0
    assert json.loads(out)["$schema"].startswith("https://json-schema.org/")


# ---- render --------------------------------------------------------------------------------------------------------

LOCAL = {"chief": ["localhost:2222"], "worker": ["localhost:2223", "localhost:2224"]}
TASK = {"type": "worker", "index": 1}


def test_render_for_this_machine(run: Run) -> None:
    code, out, _ = run("render", "mnist.yaml", "--local", "--task", "worker/1")
    assert (code, json.loads(out)) == (0, {"cluster": LOCAL, "task": TASK})


@pytest.mark.parametrize(
    ("options", "namespace"), [((), "default"), (("-n", "team"), "team"), (("--namespace", "x"), "x")]
)
def test_render_for_pods(run: Run, options: tuple[str, ...], namespace: str) -> None:
    _, out, _ = run("render", "mnist.yaml", "--task", "chief/0", "--format", "cluster-spec", *options)
    assert json.loads(out) == {
        "chief": [f"mnist-chief-0.mnist.{namespace}.svc:2222"],
        "worker": [f"mnist-worker-{i}.mnist.{namespace}.svc:2222" for i in (0, 1)],
    }


def test_render_in_the_job_file_s_namespace(run: Run, folder: Path) -> None:
    path = folder / "mnist.yaml"
    path.write_text(path.read_text() + "namespace: team\n")
    assert ".mnist.team.svc:2222" in run("render", "mnist.yaml", "--task", "chief/0")[1]


def test_render_names_the_secret_that_it_does_not_print(run: Run, folder: Path) -> None:
    (folder / "train.yaml").write_text(
        "apiVersion: tfk8s.dev/v1\nname: train\nimage: tf:1\njobs: {worker: {program: [train.py]}}\n"
    )
    code, out, err = run("render", "train.yaml")
    assert (code, "name: train-program" in out) == (0, True)
    secret = 'the Secret "train-program", with the folder of the scripts'
    assert err == f"the pods also need {secret}: `tfk8s up` creates it\n"


def test_render_unpacks_the_files_of_tasks(run: Run, folder: Path) -> None:
    code, out, err = run("render", "mnist.yaml", "--files", "there/files")
    digest = hashlib.sha256(package_files.zip_of_tasks()).hexdigest()
    assert (code, err) == (0, "")
    assert out == f"wrote the files of tfk8s.zip, whose SHA-256 is {digest}, into there/files\n"
    found = [path for path in (folder / "there" / "files").rglob("*") if path.is_file()]
    package = folder / "there" / "files" / "tfk8s"
    assert {path.relative_to(package).as_posix(): path.read_text() for path in found} == package_files.of_tasks()
    again = run("render", "mnist.yaml", "--files", "there/files")
    assert again == (2, "", 'error: "there/files" already exists\n  = help: name a new folder\n')


@pytest.mark.parametrize("options", [["--task", "worker/1"], ["--format", "env"], ["--local"]])
def test_render_unpacks_files_alone(run: Run, folder: Path, options: list[str]) -> None:
    code, out, err = run("render", "mnist.yaml", "--files", "files", *options)
    assert (code, out) == (2, "")
    assert "--files is for Kubernetes objects: it can't be combined with --task, --format or --local" in err
    assert not (folder / "files").exists()


def test_render_of_a_pod_monitor(run: Run, folder: Path) -> None:
    command = ("render", "mnist.yaml", "--format", "podmonitor", "--namespace", "team")
    code, out, err = run(*command, "--set", "metrics=true")
    made = yaml.safe_load(out)
    assert (code, err, made["kind"], made["metadata"]["namespace"]) == (0, "", "PodMonitor", "team")
    without = 'error: the tasks of "mnist" serve no metrics\n  = help: add metrics: true to the job file\n'
    assert run(*command) == (2, "", without)
    code, out, err = run(*command, "--task", "worker/1")
    assert (code, out, "is for the whole cluster" in err) == (2, "", True)


def test_render_of_flags(run: Run) -> None:
    assert run("render", "mnist.yaml", "--local", "--task", "/job:worker/task:1", "--format", "flags")[1] == (
        "--cluster_spec=chief|localhost:2222,worker|localhost:2223;localhost:2224 --job_name=worker --task_id=1\n"
        "--chief_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 --job_name=worker --task_index=1\n"
    )


def test_render_of_variables(run: Run) -> None:
    _, out, _ = run("render", "mnist.yaml", "--local", "--task", "worker/1", "--format", "env")
    variables = dict(shlex.split(line)[0].split("=", 1) for line in out.splitlines())
    assert json.loads(variables["TF_CONFIG"]) == {"cluster": LOCAL, "task": TASK}
    assert json.loads(variables["TFK8S_CLUSTER"]) == LOCAL
    assert variables["TFK8S_TARGET"] == "grpc://localhost:2222"


def test_render_of_addresses_that_the_file_gives(run: Run, folder: Path) -> None:
    (folder / "there.yaml").write_text('apiVersion: tfk8s.dev/v1\nname: there\njobs: {worker: ["10.0.0.5:2222"]}\n')
    assert json.loads(run("render", "there.yaml", "--local", "--task", "worker/0")[1])["cluster"] == {
        "worker": ["10.0.0.5:2222"]
    }


def test_only_an_evaluator_has_the_evaluator_in_tf_config(run: Run, folder: Path) -> None:
    (folder / "e.yaml").write_text("apiVersion: tfk8s.dev/v1\nname: e\njobs: {chief: 1, evaluator: 1}\n")
    assert "evaluator" not in run("render", "e.yaml", "--task", "chief/0")[1]
    assert "evaluator" in run("render", "e.yaml", "--task", "evaluator/0")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--local",),
            (
                "error: on this machine, render needs --task\n"
                "  = help: --task JOB/INDEX; the tasks are chief/0, worker/0 to worker/1\n"
            ),
        ),
        (
            ("--task", "worker/9"),
            (
                'error: there is no task "worker/9"; there are chief/0, worker/0 to worker/1\n'
                "  = help: did you mean worker/1?\n"
            ),
        ),
        (
            ("--format", "env"),
            (
                "error: --format env is for a task's configuration: it needs --task\n"
                "  = help: tfk8s render mnist.yaml --task chief/0 --format env\n"
            ),
        ),
        (
            ("--task", "worker/1", "--format", "xml"),
            (
                "error: Invalid value for '--format': \"xml\" is not a format; use cluster-spec, tf-config, "
                "flags, env, podmonitor\n"
                "  = help: tfk8s render --help\n"
            ),
        ),
        (
            ("--task", "worker/1", "--local", "-n", "x"),
            "error: --local can't be combined with --namespace\n",
        ),
    ],
)
def test_render_refuses_invalid_options(run: Run, arguments: tuple[str, ...], message: str) -> None:
    assert run("render", "mnist.yaml", *arguments) == (2, "", message)


# ---- init ----------------------------------------------------------------------------------------------------------

STARTER = """\
# A cluster of TensorFlow servers. `tfk8s validate` checks this file; `tfk8s schema` describes all keys.
apiVersion: tfk8s.dev/v1
name: two-tasks
image: tensorflow/tensorflow:2.21.0  # used on Kubernetes only
port: 3000  # the script names localhost:3000

# The ClusterSpec: the jobs and their tasks. Scripts name the tasks /job:NAME/task:0, /job:NAME/task:1, …
jobs:
  local: 2
  ps: 2  # the script computes the tasks: are these all?

# Sessions connect to task 0 of the master's job. Without this line, that is `master`, else `chief`, else `worker`,
# else the first job by name.
# master: local

# A job in full: worker: {tasks: 2, cpu: 4, memory: 16Gi}. Without cpu and memory, a task uses what its node has free.
# A task with GPUs: gpus: 1, and on GKE accelerator: nvidia-l4
"""

SCRIPT = """
with tf.device("/job:local/task:1"): ...
with tf.device(f"/job:ps/task:{index}"): ...
tf.Session("grpc://localhost:3000")
"""


def test_init_from_a_script(run: Run, folder: Path) -> None:
    (folder / "two_tasks.py").write_text(SCRIPT)
    assert run("init", "--from", "two_tasks.py") == (
        0,
        "wrote cluster.yaml\n",
        "start the cluster on this machine: tfk8s up --local cluster.yaml\n",
    )
    assert (folder / "cluster.yaml").read_text() == template.FOR_EDITORS + STARTER
    assert load(folder / "cluster.yaml").port == 3000


FROM_TFJOB = """\
# The programs of TFJob mnist in tfjob.yaml, for `tfk8s run`. What differs:
# - the pods do not run as root, and only /tmp and volumes are writable (docs/security.md)
# - only the pods of the cluster connect to its pods; network: {allow_from: …} lets others in

apiVersion: tfk8s.dev/v1
name: mnist
image: a
jobs:
  worker:
    tasks: 1
    program: [b]
run: {restart_on: never}
"""


def test_init_from_a_tfjob_says_what_differs(run: Run, folder: Path) -> None:
    (folder / "tfjob.yaml").write_text(TFJOB)
    assert run("init", "--from", "tfjob.yaml") == (
        0,
        "wrote cluster.yaml\n",
        (
            "note: the pods do not run as root, and only /tmp and volumes are writable (docs/security.md)\n"
            "note: only the pods of the cluster connect to its pods; network: {allow_from: …} lets others in\n"
            "run the programs: tfk8s run cluster.yaml\n"
        ),
    )
    assert (folder / "cluster.yaml").read_text() == template.FOR_EDITORS + FROM_TFJOB
    assert run("validate", "cluster.yaml")[0] == 0


def test_init_from_a_file_without_a_tfjob_writes_nothing(run: Run, folder: Path) -> None:
    assert run("init", "--from", "mnist.yaml") == (
        2,
        "",
        'error: "mnist.yaml" is a job file already\n  = help: tfk8s validate mnist.yaml\n',
    )
    assert run("init", "--from", "nope.yaml") == (
        2,
        "",
        'error: "nope.yaml" can\'t be read: No such file or directory\n',
    )
    assert not (folder / "cluster.yaml").exists()


def test_init_from_nothing_is_valid(run: Run, folder: Path) -> None:
    assert run("init")[0] == 0
    found = load(folder / "cluster.yaml")
    assert found.name == template.cluster_name(folder.name)
    assert [(job.name, job.tasks) for job in found.jobs] == [("worker", 2)]
    assert isinstance(found.jobs[0], Job)


def test_init_overwrites_nothing(run: Run, folder: Path) -> None:
    (folder / "cluster.yaml").write_text("mine")
    assert run("init") == (
        2,
        "",
        'error: "cluster.yaml" already exists\n  = help: rename it first; tfk8s does not overwrite it\n',
    )
    assert (folder / "cluster.yaml").read_text() == "mine"


def test_init_from_no_script_writes_nothing(run: Run, folder: Path) -> None:
    assert run("init", "--from", "nope.py") == (2, "", 'error: there is no script "nope.py"\n')
    assert not (folder / "cluster.yaml").exists()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (b"\x89PNG\r\n\x1a\n\0", "source code string cannot contain null bytes"),
        (
            b"name: mnist\njobs: {worker: 2}\nprint 'x'",
            "line 3: Missing parentheses in call to 'print'. Did you mean print(...)?",
        ),
    ],
)
def test_init_from_another_file_writes_nothing(run: Run, folder: Path, script: bytes, message: str) -> None:
    (folder / "file").write_bytes(script)
    assert run("init", "--from", "file") == (
        2,
        "",
        f'error: "file" is not a Python script: {message}\n  = help: name a program in Python 3, or leave out --from\n',
    )
    assert not (folder / "cluster.yaml").exists()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("two_tasks", "two-tasks"),
        ("MNIST 2", "mnist-2"),
        ("1abc", "my-cluster"),
        ("", "my-cluster"),
        ("x" * 99, "x" * 40),
    ],
)
def test_names_from_folders_and_files(text: str, name: str) -> None:
    assert template.cluster_name(text) == name
