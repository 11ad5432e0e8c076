"""Tests of scripts that run as programs of tasks."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from tfk8s.task.programs import hints, runner

_ERRORS = "tensorflow.python.framework.errors_impl"  # the module of TensorFlow's own errors

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a text as a program, which returns its exit code, its output and its errors."""

    def run(text: str, *arguments: str) -> tuple[int, str, str]:
        script = tmp_path / "train.py"
        script.write_text(text)
        monkeypatch.setattr(sys, "argv", sys.argv)
        monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)
        monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
        monkeypatch.setattr(sys, "path", ["", *sys.path])
        code = runner.run([str(script), *arguments])
        out, errors = capsys.readouterr()
        return code, out, errors.replace(str(script), "train.py")

    return run


def test_runs_as_python_does(run: Run, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("word = 'beside'")
    text = "import beside, sys\nprint(__name__, __file__.endswith('train.py'), sys.argv[1:], beside.word)"
    assert run(text, "--steps", "3") == (0, "__main__ True ['--steps', '3'] beside\n", "")


@pytest.mark.parametrize(("end", "code"), [("sys.exit()", 0), ("sys.exit(7)", 7), ("sys.exit('no data')", 1)])
def test_its_own_exit_code(run: Run, end: str, code: int) -> None:
    assert run(f"import sys; {end}")[0] == code


def test_its_own_error_shows_its_own_frames(run: Run) -> None:
    code, _, errors = run("def f():\n    raise ValueError('too big')\nf()")
    assert code == 1
    assert errors == (
        "Traceback (most recent call last):\n"
        '  File "train.py", line 3, in <module>\n    f()\n'
        "  File \"train.py\", line 2, in f\n    raise ValueError('too big')\n"
        "ValueError: too big\n"
    )


@pytest.mark.parametrize(
    ("name", "message", "code"),
    [
        ("UnavailableError", "Collective ops is aborted by: /job:worker/task:1 is unhealthy", 138),
        ("AbortedError", "Session handle is not found", 138),
        ("InternalError", "recv'd connection error: Connection reset by peer", 138),
        ("CancelledError", "task 1 stopped sending heartbeats", 138),
        ("InternalError", "NCCL: remote process exited or there was a network error. Set NCCL_DEBUG=WARN …", 138),
        ("InternalError", "nccl.cc:9: NCCL operation ncclGroupEnd() failed: timeout. Last NCCL warning(error) …", 138),
        ("DeadlineExceededError", "Collective has timed out waiting for other workers.", 138),
        ("DeadlineExceededError", "Collective has timed out during execution.", 138),
        ("DeadlineExceededError", "Barrier timed out. Id: PjRT_Client_Connect", 138),
        ("InternalError", "NCCL: unhandled cuda error. Set NCCL_DEBUG=WARN for detail.", 1),
        ("InternalError", "NCCL: unhandled system error. Set NCCL_DEBUG=WARN for detail.", 1),
        ("InvalidArgumentError", "Matrix size-incompatible", 1),
        ("InternalError", "cuDNN failed", 1),
    ],
)
def test_a_lost_task_has_its_exit_code(run: Run, name: str, message: str, code: int) -> None:
    made = f"E = type({name!r}, (Exception,), {{'__module__': {_ERRORS!r}}})"
    result = run(f"{made}\ntry:\n    raise E({message!r})\nexcept E as e:\n    raise RuntimeError('epoch') from e")
    assert result[0] == code
    assert ("tfk8s: another task was lost; exit code 138" in result[2].splitlines()) == (code == 138)


def test_an_error_of_the_script_with_such_words_is_its_own(run: Run) -> None:
    assert run("raise ConnectionError('Connection refused')")[0] == 1


# ---- hints ---------------------------------------------------------------------------------------------------------

KERAS_2 = "install tf_keras, and set TF_USE_LEGACY_KERAS=1 (`env` in the job file)"
PER_REPLICA = "Attempt to convert a value (PerReplica:{\n}) with an unsupported type to a Tensor."


def test_a_hint_is_the_last_line(run: Run) -> None:
    code, _, errors = run("raise RuntimeError('Collective ops must be configured at program startup')")
    assert code == 1
    assert errors.splitlines()[-2:] == [
        "RuntimeError: Collective ops must be configured at program startup",
        "hint: create MultiWorkerMirroredStrategy once, before any other operation of TensorFlow",
    ]


@pytest.mark.parametrize(("file", "is_keras"), [("/site-packages/keras/src/trainer.py", True), ("train.py", False)])
def test_keras_3_with_multi_worker_mirrored_strategy(file: str, is_keras: bool) -> None:
    with pytest.raises(ValueError, match="PerReplica") as caught:
        exec(compile("raise error", file, "exec"), {"error": ValueError(PER_REPLICA)})  # noqa: S102
    expected = (
        f"Keras 3 does not train with MultiWorkerMirroredStrategy, Keras 2 does: {KERAS_2}; or call "
        "tfk8s.correct_keras() before compile"
    )
    assert hints.hint(caught.value) == (expected if is_keras else None)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("'Mean' object has no attribute 'reset_states'", f"the program is for Keras 2: {KERAS_2}"),
        ("`keras.optimizers.legacy` is not supported in Keras 3.", f"the program is for Keras 2: {KERAS_2}"),
        (
            "Keras cannot be imported. Check that it is installed.",
            f"TF_USE_LEGACY_KERAS needs the package tf_keras for {sys.executable}",
        ),
        ("shapes", None),
    ],
)
def test_programs_for_keras_2(message: str, expected: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    assert hints.hint(RuntimeError(message)) == expected


APP = AttributeError("module 'tensorflow' has no attribute 'app'")
ONLY_TF1 = "only TensorFlow 1 has app; write tf1: true beside `program` in the job file"


@pytest.mark.parametrize(("tf1", "expected"), [("", ONLY_TF1), ("1", None)])
def test_programs_for_tensorflow_1(tf1: str, expected: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    v1 = types.SimpleNamespace(app=object())
    monkeypatch.setitem(sys.modules, "tensorflow", types.SimpleNamespace(compat=types.SimpleNamespace(v1=v1)))  # type: ignore[arg-type]
    monkeypatch.setenv("TFK8S_TF1", tf1)
    assert hints.hint(APP) == expected


def test_a_part_of_tensorflow_1_that_is_gone() -> None:
    error = AttributeError("module 'tensorflow' has no attribute 'estimator'")
    assert hints.hint(error) == hints.removed_part(str(error)) is not None
