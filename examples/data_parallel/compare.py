"""Runs all rungs of the ladder on clusters of this machine, prints their speeds, and draws their learning curves.

    python examples/data_parallel/compare.py --steps 400 --batch 20000 curves.png

A file with all costs, curves.csv, gets its place beside the picture.
"""

import argparse
import csv
import dataclasses
import json
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import tfk8s

HERE = Path(__file__).parent
RUNGS = {  # script: name, whether it is a program of TensorFlow 1, line, marker
    "single.py": ("one process", True, "-", None),
    "naive.py": ("naive", True, ":", "o"),
    "in_graph.py": ("input on the workers", True, "--", "s"),
    "fused.py": ("fused", True, "-.", "^"),
    "many_steps.py": ("many steps a run", True, ":", "v"),
    "local_sgd.py": ("local SGD", True, "--", "D"),
    "parameter_server.py": ("ParameterServerStrategy", False, "-.", "x"),
    "mirrored.py": ("MultiWorkerMirroredStrategy", False, ":", "+"),
}
WORKERS = 2

parser = argparse.ArgumentParser()
parser.add_argument("picture", nargs="?", type=Path, default="curves.png")
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--batch", type=int, default=20_000, help="the examples of a worker in a step")
parser.add_argument("--every", type=int, default=100, help="the steps of a run, for the rungs that have several")
parser.add_argument("--rungs", nargs="+", default=list(RUNGS), choices=RUNGS, metavar="SCRIPT")
parser.add_argument("--one-core", action="store_true", help="a core for each worker, and one for the one process")
options = parser.parse_args()


def run(script, result):
    """Run a rung once, and return what it has written."""
    words = [f"--{name}={getattr(options, name)}" for name in ("steps", "batch", "every")] + [f"--result={result}"]
    if script == "mirrored.py":  # a program in each worker, so its cluster is another one
        job_file = tfk8s.load(HERE / "mirrored.yaml")
        job = job_file.jobs[0]
        job = dataclasses.replace(job, program=dataclasses.replace(job.program, words=(script, *words)))
        with tfk8s.up(dataclasses.replace(job_file, jobs=(job,)), local=True) as cluster:
            pin(cluster)
            code = cluster.wait_for_programs().exit_code
    else:
        environment = {}
        if script == "single.py":
            words += ["--core=0"] if options.one_core else []
            environment["TF_NUM_INTRAOP_THREADS"] = "0"  # TensorFlow's default: one for each core of the process
        code = servers.submit(HERE / script, *words, tf1=RUNGS[script][1], environment=environment)
    if code:
        raise SystemExit(f"{script} has failed with exit code {code}")
    return json.loads(result.read_text())


def pin(cluster):
    """Give the workers a core each: the first has core 0."""
    workers = [task for task in cluster.tasks() if options.one_core and task.task.job == "worker"]
    for core, task in enumerate(workers):
        for thread in Path("/proc", task.runs_on.removeprefix("pid "), "task").iterdir():
            os.sched_setaffinity(int(thread.name), [core])


def rate(result):
    return len(result["costs"]) / result["seconds"][-1]


def report(results):
    rates = {script: rate(result) for script, result in results.items()}
    print(f"{'':29}{'steps/s':>9}{'samples/s':>12}{'ratio':>8}{'bytes a step':>14}{'loss':>10}")
    for script, result in results.items():
        speed = rates[script]
        samples, ratio = speed * options.batch * WORKERS, speed / rates[next(iter(results))]
        print(
            f"{RUNGS[script][0]:29}{speed:9.1f}{samples:12,.0f}{ratio:8.2f}{result['bytes']:14,.0f}"
            f"{result['costs'][-1]:10.5f}"
        )


def draw(results):
    plt.switch_backend("Agg")  # draws into files: no screen needed
    figure, (steps, seconds) = plt.subplots(1, 2, figsize=(11, 5), sharey=True, layout="constrained")
    for offset, (script, result) in enumerate(results.items()):
        name, _, line, marker = RUNGS[script]
        gap = max(1, len(result["costs"]) // 10)
        style = {"linestyle": line, "marker": marker, "markevery": (offset * gap // 8, gap), "markerfacecolor": "none"}
        style |= {"color": "black", "linewidth": 2 if marker is None else 1, "label": name}
        steps.semilogy(result["costs"], **style)
        seconds.loglog(result["seconds"], result["costs"], **style)
    steps.set(xlabel="step", ylabel="loss", title="A network learns y = e^x: loss against steps")
    seconds.set(xlabel="seconds", title="loss against seconds")
    steps.legend()
    figure.savefig(options.picture, dpi=90)


def write(results):
    with options.picture.with_suffix(".csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["method", "step", "seconds", "loss"])
        for script, result in results.items():
            for step, (second, cost) in enumerate(zip(result["seconds"], result["costs"], strict=True)):
                table.writerow([RUNGS[script][0], step, f"{second:.6f}", f"{cost:.6g}"])


with tempfile.TemporaryDirectory() as folder, tfk8s.up(HERE / "cluster.yaml", local=True) as servers:
    pin(servers)
    results = {script: run(script, Path(folder, "result.json")) for script in options.rungs}
report(results)
draw(results)
write(results)
print(f"curves in {options.picture}")
