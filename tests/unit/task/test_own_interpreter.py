"""Variables that scripts set, by their source and in a run, and the interpreter that a fork becomes then."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tfk8s.task.programs import import_variables, set_variables

FORMS = [
    'os.environ["TF_USE_LEGACY_KERAS"] = "1"',
    'environ["TF_USE_LEGACY_KERAS"] = flag',
    'os.environ["A"] = os.environ["TF_USE_LEGACY_KERAS"] = "1"',
    'os.environ["TF_USE_LEGACY_KERAS"] += "1"',
    'os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")',
    'os.environ.update({"A": "b", "TF_USE_LEGACY_KERAS": "1"})',
    'os.environ.update(TF_USE_LEGACY_KERAS="1")',
    'os.environ.update(dict(TF_USE_LEGACY_KERAS="1"))',
    'os.environ |= {"TF_USE_LEGACY_KERAS": "1"}',
    'os.putenv("TF_USE_LEGACY_KERAS", "1")',
    'if flag:\n    def f():\n        os.environ["TF_USE_LEGACY_KERAS"] = "1"',
]
WITHOUT = [
    'print(os.environ["TF_USE_LEGACY_KERAS"])',
    'os.environ.get("TF_USE_LEGACY_KERAS", "1")',
    'del os.environ["TF_USE_LEGACY_KERAS"]',
    'os.environ.pop("TF_USE_LEGACY_KERAS", None)',
    'other["TF_USE_LEGACY_KERAS"] = "1"',
    'other.update(TF_USE_LEGACY_KERAS="1")',
    'os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"',
    'os.environ["CUDA_VISIBLE_DEVICES"] = ""; os.environ["XLA_FLAGS"] = "--xla_dump_to=x"',
    '"""os.environ["TF_USE_LEGACY_KERAS"] = "1"""',
    'os.environ["TF_USE_LEGACY_KERAS"] = ',
]


def changed(script: Path, environment: dict[str, str]) -> list[str]:
    found = set_variables.find(script, script.parent, import_variables.changes_import)
    return [f"{place.file.name}:{place.line} {place.name}" for place in found if place.changes(environment)]


@pytest.mark.parametrize("line", FORMS)
def test_each_form_of_setting_a_variable_is_found(tmp_path: Path, line: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import os\n{line}\n")
    assert [place.split()[1] for place in changed(script, {})] == ["TF_USE_LEGACY_KERAS"]


@pytest.mark.parametrize("line", WITHOUT)
def test_what_changes_no_import_is_not_found(tmp_path: Path, line: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import os\n{line}\n")
    assert [place for place in changed(script, {}) if "del" not in line and "pop" not in line] == []
    assert bool(changed(script, {"TF_USE_LEGACY_KERAS": "1"})) == ("del" in line or "pop" in line)


def test_a_variable_that_is_so_already_changes_nothing(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text('os.environ["KERAS_BACKEND"] = "tensorflow"\nos.environ.setdefault("TF_A", "1")')
    assert changed(script, {"KERAS_BACKEND": "tensorflow", "TF_A": "0"}) == []
    assert changed(script, {"KERAS_BACKEND": "jax"}) == ["train.py:1 KERAS_BACKEND", "train.py:2 TF_A"]


def test_modules_beside_the_script_are_searched(tmp_path: Path) -> None:
    sets = 'import os\nos.environ["KERAS_BACKEND"] = "jax"\n'
    texts = {
        "train.py": "import numpy, one\nfrom models import net as n, other\ndef f():\n    import late.deep as d",
        "one.py": sets, "models/__init__.py": "from . import of_package", "models/of_package.py": sets,
        "models/net.py": sets, "late/__init__.py": "", "late/deep.py": "from ..up import x\nfrom .near import y",
        "late/near.py": sets, "up.py": sets, "not_imported.py": sets,
    }  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    names = {place.split(":")[0] for place in changed(tmp_path / "train.py", {})}
    assert names == {"one.py", "of_package.py", "net.py", "near.py", "up.py"}


# ---- in a run ------------------------------------------------------------------------------------------------------

_FORKS = """
import os, pathlib, sys, tensorflow
from tfk8s.task import process_end
from tfk8s.task.programs import main_script, own_interpreter
again = [sys.executable, "-S", "-c", "import os; print('again', os.environ['FROM'])"]
for folder in sys.argv[1:]:
    if not os.fork():
        os.chdir(folder)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
        own_interpreter.can_become(again, {"FROM": "request"}, {"TF_SAME": "1"})
        words = ["-m", "pack"] if os.path.exists("pack") else ["train.py"]
        own_interpreter.check_source(words)
        main_script.run(words[0], words[1:])
        process_end.end(0)
    os.wait()
"""


ALONE = "train.py sets TF_USE_LEGACY_KERAS, so it runs in an interpreter of its own"
LATE = (
    "TF_USE_LEGACY_KERAS has no effect: TensorFlow was imported before train.py set it; "
    "set TF_USE_LEGACY_KERAS at the top of the script or in its environment, or add --fresh"
)
MODULES = [
    ("again request\n", "__main__.py, line 1, sets TF_A, so it runs in an interpreter of its own"),
    ("again request\n", ALONE.replace("train.py", "pack")),
]
RUNS = {
    "import os; print('first'); os.environ['KERAS_BACKEND'] = 'jax'": (
        "again request\n",
        "train.py, line 1, sets KERAS_BACKEND, so it runs in an interpreter of its own",
    ),
    "import sets; print('not reached')": ("again request\n", ALONE),
    "open('/dev/null', 'w'); open(__file__).read(); import sets": ("again request\n", ALONE),
    "print('before'); print('once'); import sets; print('after')": ("before\nonce\nafter\n", LATE),
    "open('new', 'w'); import sets; print('after')": ("after\n", LATE),
    "import subprocess; subprocess.run(['true']); import sets; print('after')": ("after\n", LATE),
    "import tensorflow as tf; import sets; print('after')": ("after\n",),
    "from tensorflow import constant; import sets; print('after')": ("after\n",),
    "import os; n = 'TF_SAME'; os.environ[n] = '1'; os.environ['TF_CPP_' + 'X'] = '3'; print('after')": ("after\n",),
}


@pytest.mark.programs
def test_a_fork_becomes_a_new_interpreter_while_nothing_is_repeated(tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text("def constant(): pass")
    (tmp_path / "sets.py").write_text('import os\nos.environ["TF_USE_LEGACY_KERAS"] = "1"')
    folders = [tmp_path / str(number) for number in range(len(RUNS))]
    for folder, text in zip(folders, RUNS, strict=True):
        folder.mkdir()
        (folder / "train.py").write_text(text)
    for number, text in enumerate(("import os; os.environ['TF_A'] = ''", "import sets")):
        folders.append(tmp_path / f"module_{number}")
        (folders[-1] / "pack").mkdir(parents=True)
        (folders[-1] / "pack" / "__main__.py").write_text(text)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    subprocess.run([sys.executable, "-c", _FORKS, *folders], env={"PYTHONPATH": path}, check=True, timeout=30)
    ends = [((folder / "out").read_text(), (folder / "err").read_text()) for folder in folders]
    assert ends == [(out, "".join(f"tfk8s: {line}\n" for line in lines)) for out, *lines in [*RUNS.values(), *MODULES]]
