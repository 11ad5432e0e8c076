"""What the examples print, here as on Kubernetes: what the pages show."""

from __future__ import annotations

import re

from documented_commands import PAGES, page_commands

_SHOWN = {
    command.text.rpartition(" examples/")[2]: f"{command.output}\n"
    for page in PAGES for command in page_commands(page) if command.output
}  # fmt: skip
TUTORIAL = {
    name: _SHOWN[f"tutorial/{name}"]
    for name in ("single.py", "session.py", "two_tasks.py", "map_reduce.py", "mean.py", "weighted_mean.py")
}
REMOTE_GPU_WITHOUT_ONE = _SHOWN["tutorial/remote_gpu.py"]
PARAMETER_SERVER = _SHOWN["parameter_server/train.py"]
DATA_SERVICE = _SHOWN["data_service/train.py"]

_COSTS = re.compile(r"step +(\d+): cost (\d+\.\d+)")


def costs(output: str) -> dict[int, float]:
    """Return the costs that an example of data parallelism printed, by step."""
    return {int(step): float(cost) for step, cost in _COSTS.findall(output)}
