"""The tests that show each feature, so that few tests say enough about a version.

A test is named as pytest names it. A file stands for its tests, and a function for its parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

TENSORFLOW = {
    "the tutorial": ["tests/local/training/test_pages.py::test_pages_with_the_cluster_of_the_tutorial"],
    "data parallelism": [
        "tests/local/training/test_examples.py::test_data_parallel_learns_as_its_page_shows",
        "tests/local/training/test_parallel.py",
    ],
    "ParameterServerStrategy": [
        "tests/local/training/test_pages.py::test_pages[examples/parameter_server/README.md]",
        "tests/local/test_parameter_server.py::test_two_coordinators_share_the_tasks",
    ],
    "MultiWorkerMirroredStrategy": [
        "tests/local/training/test_replicas.py::test_mirrored_workers_learn_as_the_page_of_the_example_shows",
    ],
    "`tfk8s.strategy()`": [
        "tests/local/training/test_strategy.py::test_losses_equal_those_of_one_process",
        "tests/local/training/test_strategy.py::test_replicas_change_variables_without_aggregation",
    ],
    "`tfk8s.correct_keras()`": [
        "tests/local/training/test_strategy.py::test_two_workers_train_as_one_process",
        "tests/local/training/test_strategy.py::test_parameter_servers_count_each_step",
    ],
    "programs": [
        "tests/local/test_programs.py::test_the_end_of_the_chief_is_the_success",
        "tests/local/test_programs.py::test_a_failure_ends_run_with_its_code_and_its_last_line",
    ],
    "tf.data's service": [
        "tests/local/training/test_data_service.py::test_each_data_worker_computes_the_whole_dataset"
    ],
    "`tfk8s scale`": ["tests/local/test_elastic.py", "tests/local/test_placement.py"],
    "`--trace`": ["tests/local/test_timeline.py::test_the_page_names_what_the_step_waits_for"],
    "a lost worker": [
        "tests/local/test_scripts.py::test_a_task_killed_in_a_call_is_named",
        "tests/local/test_scripts.py::test_a_frozen_task_is_named",
        "tests/local/test_scripts.py::test_script_survives_the_loss_of_an_unused_task",
    ],
    "servers that scripts start": ["tests/local/test_scripts.py::test_servers_of_scripts_adopt_tasks"],
    "TensorFlow's internals that tfk8s uses": ["tests/local/training/test_canaries.py"],
}
IO = {
    "`s3://` of tensorflow-io, in a cluster's own network": [
        "tests/local/test_way_out.py::test_tensorflow_io_reads_from_s3"
    ]
}
_LIBRARY = "tests/libraries/test_libraries.py::test_a_script[{}]"
LIBRARIES = {
    "tf-slim": [_LIBRARY.format("tf_slim")],
    "tensorflow-recommenders": [_LIBRARY.format("tensorflow_recommenders")],
    "tensorflow-ranking": [_LIBRARY.format("tensorflow_ranking")],
    "tf-agents": [_LIBRARY.format("tf_agents")],
    "tensorflow-hub": [_LIBRARY.format("tensorflow_hub")],
    "deepctr": [_LIBRARY.format("deepctr")],
    "tensorflow-probability": [_LIBRARY.format("tensorflow_probability")],
    "keras-tuner": ["tests/libraries/test_libraries.py::test_keras_tuner"],
    "gpflow": [_LIBRARY.format("gpflow")],
    "dm-sonnet": [_LIBRARY.format("sonnet")],
    "spektral": [_LIBRARY.format("spektral")],
    "tensorflow-text": [_LIBRARY.format("tensorflow_text")],
}
MIXED = {"a script and servers of different versions": ["tests/versions/test_mixed.py"]}
LOWEST = {
    "the unit tests": ["tests/unit"],
    "the client of the API server": ["tests/faults/test_api_server.py"],
    "the tutorial": ["tests/local/training/test_pages.py::test_pages_with_the_cluster_of_the_tutorial"],
    "notebooks": ["tests/local/test_notebook.py"],
    "TensorBoard": ["tests/local/test_tensorboard.py"],
}
KUBERNETES = {
    "`up`, `status`, `logs`, `restart`, `down`": ["tests/cluster/test_contract.py", "tests/cluster/test_doctor.py"],
    "`submit`": [
        "tests/cluster/test_examples.py::test_the_tutorial",
        "tests/cluster/test_scripts.py::test_arguments_folder_variables_and_exit_code",
    ],
    "`run` and programs": ["tests/cluster/test_programs.py"],
    "`scale`": ["tests/cluster/test_elastic.py"],
    "the Helm chart": ["tests/cluster/test_release.py"],
    "warm pods": ["tests/cluster/test_warm.py"],
    "fields that the API server knows": [
        "tests/cluster/test_scanners.py::test_the_api_server_takes_all_of_it_to_the_letter"
    ],
}
WHOLE = {"the whole cluster suite": ["tests/cluster"]}
SCHEDULING = {
    "gangs of PodGroups": ["tests/gang"],
    "queues of Kueue": ["tests/kueue"],
    "nodes of Karpenter, with its simulated provider": ["tests/karpenter"],
}
HELM = {"the chart's objects": ["tests/chart"], "a release": ["tests/cluster/test_release.py"]}


def of(node: str, features: Mapping[str, Sequence[str]]) -> str:
    """Return the feature that a test shows; "" for none."""
    for feature, tests in features.items():
        if any(node == test or node.startswith((f"{test}[", f"{test}::", f"{test}/")) for test in tests):
            return feature
    return ""
