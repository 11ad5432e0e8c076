"""What the examples print, here as on Kubernetes."""

from __future__ import annotations

import re

TUTORIAL = {
    "single.py": "238\n",
    "session.py": "238\n",
    "two_tasks.py": "238\n",
    "map_reduce.py": "task 0 41541750\ntask 1 291291750\nsum    332833500\n",
    "mean.py": "mean  0.472794\nNumPy 0.472794\n",
    "weighted_mean.py": "unweighted 0.513579\nweighted   0.472794\nNumPy      0.472794\n",
}
REMOTE_GPU_WITHOUT_ONE = (
    "/job:local/task:0 has no GPU: soft placement will choose another device.\n"
    "square ran on /job:local/replica:0/task:0/device:CPU:0\n"
    "[[7.0, 10.0], [15.0, 22.0]]\n"
)
PARAMETER_SERVER = "200 steps, loss 0.0000\nps/0 has the weights 1.00 -2.00\nps/1 has the weights 3.00 -4.00\n"
DATA_SERVICE = "".join(f"epoch {epoch}: 4096 examples\n" for epoch in range(2)) + "y = 3.00 x + 2.00\n"

_COSTS = re.compile(r"step +(\d+): cost (\d+\.\d+)")


def costs(output: str) -> dict[int, float]:
    """Return the costs that an example of data parallelism printed, by step."""
    return {int(step): float(cost) for step, cost in _COSTS.findall(output)}
