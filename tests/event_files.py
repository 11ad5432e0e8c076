"""A script that writes event files, and what TensorBoard shows of them."""

from __future__ import annotations

import urllib3

from tfk8s import polling

LOSSES = [1.0, 0.5, 0.25]

# Writes below the folder that is the script's argument.
WRITE = f"""
import sys
import tensorflow as tf
with tf.summary.create_file_writer(sys.argv[1] + "/train").as_default():
    for step, loss in enumerate({LOSSES}):
        tf.summary.scalar("loss", loss, step=step)
"""


def losses(url: str, run: str = "train") -> list[float]:
    """Return the losses that the page at this address shows, as soon as there are some."""

    def ask() -> list[list[float]] | None:
        address = f"{url}data/plugin/scalars/scalars?run={run}&tag=loss"
        try:
            answer = urllib3.request("GET", address, retries=False, timeout=10)
        except urllib3.exceptions.HTTPError:
            return None
        return answer.json() if answer.status == 200 else None

    return [value for _, _, value in polling.wait_until(ask, "TensorBoard to read the event files", 120)]
