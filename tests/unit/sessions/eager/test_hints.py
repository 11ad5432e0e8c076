"""Hints about failures of programs for TensorFlow 2, with the messages of TensorFlow and Keras."""

from __future__ import annotations

import sys

import pytest

from tfk8s.sessions import failures
from tfk8s.sessions.eager import hints
from tfk8s.sessions.failures import ScriptRun

KERAS_2 = (
    "Keras 3 does not train with ParameterServerStrategy, Keras 2 does: install tf_keras, and set "
    "TF_USE_LEGACY_KERAS=1 (`env` in the job file); or use tfk8s.strategy(), which works with Keras 3; or call "
    "tfk8s.correct_keras() before compile"
)
FORWARDED = (
    "with --here there is no TF_CONFIG, because the tasks can't reach each other at the addresses of this machine; "
    "leave out --here"
)
TOO_LARGE = (
    "the cluster is too large for TF_CONFIG: a variable holds 128 KiB; give json.loads(os.environ['TFK8S_CLUSTER']) to "
    "a tf.distribute.cluster_resolver.SimpleClusterResolver"
)
PER_WORKER = ValueError(
    "To use this dataset, you need to pass this dataset to ClusterCoordinator.create_per_worker_dataset."
)
NO_CLUSTER = ValueError("Cluster spec must be non-empty in `tf.distribute.cluster_resolver.ClusterResolver`.")


def raised_in(file: str, error: Exception) -> Exception:
    try:
        exec(compile("raise error", file, "exec"), {"error": error})  # noqa: S102
    except ValueError as raised:
        return raised
    raise AssertionError


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (raised_in("/site-packages/keras/src/utils/traceback_utils.py", PER_WORKER), KERAS_2),
        (AttributeError("module 'keras.utils' has no attribute 'experimental'"), KERAS_2),
        (AttributeError("module 'keras._tf_keras.keras' has no attribute 'experimental'"), KERAS_2),
        (AttributeError("module 'cards' has no attribute 'experimental'"), None),
        (ValueError("shapes"), None),
    ],
)
def test_keras_3_with_parameter_server_strategy(error: Exception, expected: str | None) -> None:
    assert hints.hint(error) == expected


def test_the_same_error_in_a_loop_of_the_script_is_not_about_keras() -> None:
    assert hints.hint(raised_in("/home/jo/train.py", ValueError(str(PER_WORKER)))) is None


@pytest.mark.parametrize(
    ("forwarded", "expected"),
    [
        (True, FORWARDED),
        (False, TOO_LARGE),
    ],
)
def test_a_script_without_tf_config(forwarded: bool, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if forwarded:
        monkeypatch.setenv("TFK8S_FORWARDED", "1")
    assert hints.hint(NO_CLUSTER) == expected
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert hints.hint(NO_CLUSTER) is None


def test_a_new_dispatcher_of_tf_data() -> None:
    error = ValueError("Failed to get tasks: Iteration client id not found: 3005 [Op:IteratorGetNext] name: ")
    assert hints.hint(error) == (
        "tf.data's dispatcher has forgotten this iteration, as a new pod of the dispatcher has; run the script again"
    )


def test_a_cluster_without_the_data_service() -> None:
    assert hints.hint(KeyError("TFK8S_DATA_SERVICE")) == (
        "the cluster has no job of kind: data, which runs tf.data's service; add input: {kind: data, tasks: 3} to "
        "`jobs`"
    )
    assert hints.hint(KeyError("TFK8S_DATA_SERVICES")) is None


# TensorFlow 2.21's, shortened, when a ps saves and loads a checkpoint in a folder that only the script has.
REMOTE = "Additional GRPC error information from remote target /job:ps/replica:0/task:1/device:CPU:0 while calling /x:"
SAVING = f"(0) NOT_FOUND:   /tmp/dir/ckpt_temp; No such file or directory\n\t [[{{{{node SaveV2}}}}]]\n{REMOTE}"
LOADING = f"Unsuccessful TensorSliceReader constructor: Failed to find any matching files for /tmp/dir/ckpt-1\n{REMOTE}"


@pytest.mark.parametrize(("message", "file"), [(SAVING, "/tmp/dir/ckpt_temp"), (LOADING, "/tmp/dir/ckpt-1")])
def test_a_folder_that_only_the_script_has(message: str, file: str) -> None:
    assert hints.hint(RuntimeError(message)) == (
        f"ps/1 has no {file}: the task of a variable reads and writes the variable's file; put the folder on a volume "
        "that the tasks and the script share (`volumes` in the job file)"
    )
    assert hints.hint(RuntimeError(message.replace("/job:ps", "/job:chief"))) is None
    assert hints.hint(RuntimeError(message.partition("\n")[0])) is None


def test_keras_2_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ImportError("Keras cannot be imported. Check that it is installed.")
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    assert failures.hint(error, ScriptRun("train.py"), lambda *_: False) == (
        f"install the package: {sys.executable} -m pip install tf_keras; a module of your own belongs beside SCRIPT"
    )
    monkeypatch.delenv("TF_USE_LEGACY_KERAS")
    assert failures.hint(error, ScriptRun("train.py"), lambda *_: False) is None
