"""The files of this package that run in pods, and the zip that brings them there."""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from job_files import EVERYTHING, PROGRAMS
from package_imports import PACKAGE, closure
from zips import unpack, with_files

import tfk8s
from tfk8s import render
from tfk8s.jobfile.loader import loads
from tfk8s.render import manifests, package_files

CONTENTS = {"tasks": package_files.of_tasks(), "scripts": package_files.of_scripts()}
USERS_NAMES = ("correct_keras", "path", "progress", "session", "strategy")  # which programs and scripts use
USED = ["errors.py", *(f"{tfk8s._HOMES[name].replace('.', '/')}.py" for name in USERS_NAMES)]
USED += [path.relative_to(PACKAGE).as_posix() for path in (PACKAGE / "training" / "parallel").glob("*.py")]
PROCESSES = {
    "tasks": ["task/server.py", "task/lifetime/__main__.py", "task/data/service.py", "task/programs/pod.py"],
    "scripts": [
        "sessions/pod/entrypoint.py", "sessions/pod/tensorboard.py",
        "sessions/runner.py", "sessions/warm/entrypoint.py",
    ],
}  # fmt: skip


@pytest.mark.parametrize("content", CONTENTS)
def test_pods_have_all_imported_files(content: str) -> None:
    """Imports in functions count too: a pod that misses a file fails late."""
    assert closure([*PROCESSES[content], *USED], late=True) <= CONTENTS[content].keys()


@pytest.mark.parametrize("content", CONTENTS)
def test_files_lack_their_docstrings_alone(content: str) -> None:
    """Each statement stands on its line, so that tracebacks name the lines of the repository."""
    for path, text in CONTENTS[content].items():
        whole, packed = (without_docstrings(ast.parse(part)) for part in ((PACKAGE / path).read_text(), text))
        assert ast.dump(packed) == ast.dump(whole), path
        assert lines(packed) == lines(whole), path
    assert '"""' not in CONTENTS[content]["core/naming.py"]


def lines(tree: ast.Module) -> list[int]:
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)]


def without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body[0] = ast.Pass(lineno=0, col_offset=0)
    return tree


def test_the_same_files_give_the_same_zip() -> None:
    files = list(CONTENTS["tasks"].items())
    packed = package_files.zip_of_tasks()
    assert package_files.pack(dict(reversed(files))) == packed
    assert unpack(packed) == CONTENTS["tasks"]
    entries = zipfile.ZipFile(io.BytesIO(packed)).infolist()
    assert [entry.filename for entry in entries] == sorted(f"tfk8s/{path}" for path, _ in files)
    assert {(entry.date_time, entry.create_system, entry.external_attr >> 16) for entry in entries} == {
        ((1980, 1, 1, 0, 0, 0), 3, 0o100644)
    }


def test_another_zlib_changes_no_pod() -> None:
    job_file = loads(EVERYTHING, "job.yaml")
    made = manifests.render(job_file, package_files.zip_of_tasks())
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as other:
        for path, text in CONTENTS["tasks"].items():
            other.writestr(f"tfk8s/{path}", text)
    others = manifests.render(job_file, packed.getvalue())
    assert [item["kind"] for item, other in zip(made, others, strict=True) if item != other] == ["ConfigMap"]
    assert with_files(made) == with_files(others)


def test_digest_says_which_files_there_are() -> None:
    digests = {package_files.digest(files) for files in ({"a": b"b"}, {"a": b"c"}, {"c": b"b"}, {"a": b"b", "c": b"d"})}
    assert len(digests) == 4
    assert package_files.digest({"a": b"b", "c": b"d"}) == package_files.digest({"c": b"d", "a": b"b"})
    package = Path(package_files.__file__).parents[1]
    sent = {path: (package / path).read_bytes() for path in CONTENTS["scripts"]}
    assert package_files.digest_of_scripts() == package_files.digest(sent)


@pytest.mark.parametrize("text", [EVERYTHING, PROGRAMS], ids=["servers", "programs"])
def test_kubectl_can_apply_each_object_without_the_option_server_side(text: str) -> None:
    """`kubectl apply` writes an object into one of its annotations, and all have at most 256 KiB together.

    The limit is TotalAnnotationSizeLimitB in k8s.io/apimachinery/pkg/api/validation. The rest is for the next files.
    """
    for item in render.objects(loads(text, "job.yaml")):
        assert len(json.dumps(item)) < 256_000


SCRIPT = """
import inspect, linecache, pathlib, sys, traceback
import tfk8s
from tfk8s.core import naming
from tfk8s.task.programs import main_script, stacks
assert tfk8s.__file__ == sys.argv[1] + "/tfk8s/__init__.py", tfk8s.__file__
assert callable(tfk8s.session) and callable(tfk8s.strategy) and callable(tfk8s.path)
assert inspect.getsource(naming.pod).startswith("def pod(")
line = inspect.getsourcelines(naming.pod)[1]
assert stacks._source(stacks.Frame(naming.__file__, line, "pod")).startswith("def pod(")
pathlib.Path("script.py").write_text("1 / 0")
try:
    main_script.run("script.py", [])
except ZeroDivisionError:
    shown = traceback.format_exc()
    assert "main_script.py" in shown and "exec(code, main.__dict__)" in shown, shown
    sys.stdout.flush()
    main_script.print_traceback(sys.exc_info()[1])
"""


@pytest.mark.programs
@pytest.mark.parametrize("content", CONTENTS)
def test_python_imports_and_shows_the_files_of_a_zip(content: str, tmp_path: Path) -> None:
    path = tmp_path / package_files.KEY
    path.write_bytes(package_files.pack(CONTENTS[content]))
    environment = {**os.environ, "PYTHONPATH": str(path)}
    command = [sys.executable, "-S", "-c", SCRIPT, str(path)]  # without this environment's own tfk8s
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert package_files.KEY not in done.stderr  # the frames of tfk8s are left out
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.programs
@pytest.mark.parametrize("module", ["tfk8s.task.server", "tfk8s.task.programs.pod", "tfk8s.task.lifetime"])
def test_python_runs_the_modules_of_a_zip(module: str, tmp_path: Path) -> None:
    path = tmp_path / package_files.KEY
    path.write_bytes(package_files.zip_of_tasks())
    command = [sys.executable, "-S", "-X", "importtime", "-m", module, "--no-such-option"]
    environment = {"PYTHONPATH": str(path)}
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode != 0
    assert "No module named" not in done.stderr
    assert "tfk8s.core.naming" in done.stderr
