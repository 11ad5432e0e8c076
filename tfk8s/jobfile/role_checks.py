"""Checks of the jobs' roles: the master, and what servers, programs and tf.data's service can't have."""

from __future__ import annotations

from collections.abc import Iterator

from tfk8s.core.programs import Program, referenced_jobs
from tfk8s.core.roles import EVALUATOR, MIN_DATA_TASKS, takes_part
from tfk8s.errors import Problem, quoted
from tfk8s.jobfile import syntax
from tfk8s.jobfile.document import Path
from tfk8s.jobfile.valid_values import ValidValues


def wrong_master(values: ValidValues) -> Iterator[Problem]:
    """Yield a problem if sessions can't connect to the master."""
    name = values.get("master")
    candidates = sorted(job for job in values.jobs if takes_part(job, is_data=values.is_data(job)))
    if not values.complete:
        return
    if not candidates:
        alone = "an evaluator" if EVALUATOR in values.jobs else "tf.data's service"
        message = f"{alone} alone can't be a cluster: sessions never connect to it"
        path = ("jobs", EVALUATOR if EVALUATOR in values.jobs else next(iter(values.jobs)))
        yield values.problem("bad-master", message, path, key=True, advice="add a job, such as worker: 1")
    elif isinstance(name, str) and values.is_data(name):
        message = f"sessions can't connect to a task of {quoted(name)}, which runs tf.data's service"
        yield values.problem("bad-master", message, ("master",), label=f"expected one of {', '.join(candidates)}")
    elif name == EVALUATOR:
        message = "sessions can't connect to the evaluator, which takes no part in the training"
        yield values.problem("bad-master", message, ("master",), label=f"expected one of {', '.join(candidates)}")
    elif isinstance(name, str) and values.get("jobs", name, "program"):
        message = f"sessions can't connect to a task of {quoted(name)}, which runs a program"
        yield values.problem("bad-master", message, ("master",), label="expected a job without program")
    elif isinstance(name, str) and name not in values.jobs:
        near = syntax.nearest(name, candidates)
        label = f"the jobs are {', '.join(candidates[:10])}"
        advice = near and f"write {near}"
        yield values.problem(
            "unknown-master", f"there is no job {quoted(name)}", ("master",), label=label, advice=advice
        )


def server_keys_of_programs(values: ValidValues) -> Iterator[Problem]:
    """Yield a problem for each key of a job without servers that only servers read."""
    for job in values.jobs:
        path = ("jobs", job, "preload")
        if values.is_data(job) and values.get(*path):
            message = f'preload has no effect on job "{job}", which runs tf.data\'s service'
            yield values.problem("needs-server", message, path, key=True, advice="remove preload")
        elif values.get("jobs", job, "program") and values.get(*path):
            message = f'preload has no effect on job "{job}", which runs a program'
            yield values.problem("needs-server", message, path, key=True, advice="import the modules in the program")


def tf1_without_python(values: ValidValues) -> Iterator[Problem]:
    """Yield a problem for each job whose `tf1` can't take effect: no interpreter of Python runs its program."""
    for job in values.jobs:
        path = ("jobs", job, "tf1")
        words = values.get("jobs", job, "program")
        if not values.get(*path) or (words is None and "program" in values.get("jobs", job)):
            continue
        if not words:
            message = f'tf1 has no effect on job "{job}", which has no program'
            advice = "remove tf1; session scripts get TensorFlow 1 by tfk8s submit --tf1"
            yield values.problem("needs-program", message, path, key=True, advice=advice)
        elif not Program(tuple(words)).python_arguments:
            message = f"tf1 needs a program of Python, and {quoted(words[0])} is another command"
            label = "expected a Python file, or python3 with -m MODULE or FILE.py"
            yield values.problem("bad-program", message, ("jobs", job, "program"), label=label)


def addresses_of_unknown_jobs(values: ValidValues) -> Iterator[Problem]:
    """Yield a problem for each word of a program that refers to the addresses of a job that does not exist."""
    for job in values.jobs:
        for path, word in values.entries("jobs", job, "program"):
            for name in set(referenced_jobs(word)) - set(values.jobs):
                message = f"$(TFK8S_HOSTS:{name}) refers to no job"
                label = f"expected one of {', '.join(values.jobs)}"
                yield values.problem("bad-program", message, path, label=label)


def runs_without_programs(values: ValidValues) -> Iterator[Problem]:
    """Yield a problem for rules of a run that has no programs, and for a success that no program can be."""
    if values.get("run") is None or not values.complete:
        return
    jobs = [job for job in values.jobs if values.get("jobs", job, "program")]
    tasks = {f"{job}/{index}" for job in jobs for index in range(values.tasks(job) or 0)}
    success = values.get("run", "success")
    if not jobs:
        message = "a run needs a job with a program"
        yield values.problem("needs-program", message, ("run",), key=True, advice="add a program to a job")
    elif success and success not in {*jobs, *tasks}:
        label = f"expected a job with a program ({', '.join(jobs[:10])}), or one of its tasks"
        message = f"{quoted(success)} names no program"
        yield values.problem("unknown-success", message, ("run", "success"), label=label)


def wrong_data_jobs(values: ValidValues) -> Iterator[Problem]:
    """Yield a problem for a job of tf.data's service that runs a program or lacks a worker, and for a second one."""
    jobs = [job for job in values.jobs if values.is_data(job)]
    for job in jobs:
        kind: Path = ("jobs", job, "kind")
        if values.get("jobs", job, "program"):
            message = f"job \"{job}\" can't run a program and tf.data's service"
            yield values.problem("bad-kind", message, kind, key=True, advice="remove kind, or remove program")
        has_tasks, tasks = "tasks" in values.get("jobs", job), values.get("jobs", job, "tasks")
        if not has_tasks or (tasks is not None and tasks < MIN_DATA_TASKS):
            message = f'job "{job}" needs a dispatcher and a worker'
            path = ("jobs", job, "tasks") if has_tasks else kind
            label = f"expected at least {MIN_DATA_TASKS} tasks"
            advice = None if has_tasks else f"add tasks: {MIN_DATA_TASKS}"
            yield values.problem("too-few-tasks", message, path, label=label, advice=advice)
        if job != jobs[0]:
            message = f'job "{jobs[0]}" runs tf.data\'s service already'
            advice = f"give {jobs[0]} more tasks"
            yield values.problem("two-data-services", message, kind, label="a cluster has one", advice=advice)
