"""The checks of arguments that the functions of `tfk8s.parallel` share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from tfk8s.errors import InvalidInput, quoted

EXAMPLE = '"/job:worker/task:0"'


def check_tasks(function: str, tasks: Sequence[str]) -> None:
    """Refuse anything but a list of devices, of which there is one at least.

    Args:
        function: the function whose argument this is, for the message.
        tasks: the devices.

    Raises:
        InvalidInput: the tasks are no such list.
    """
    if isinstance(tasks, str) or not tasks:
        raise invalid(function, f"tasks must be a list of devices, such as [{EXAMPLE}], not {tasks!r}")
    for task in tasks:
        check_device(function, task)


def check_device(function: str, device: str) -> None:
    """Refuse a text that TensorFlow does not take for a device.

    Raises:
        InvalidInput: TensorFlow can't read the device.
    """
    try:
        is_device = isinstance(device, str) and device.startswith("/") and bool(tf.DeviceSpec.from_string(device))
    except ValueError:
        is_device = False
    if not is_device:
        raise invalid(function, f"{quoted(str(device))} is not a device of TensorFlow, such as {EXAMPLE}")


def check_number(function: str, name: str, values: Sequence[Any], tasks: int) -> None:
    """Refuse a list that has not one element for each task.

    Raises:
        InvalidInput: the list is longer or shorter.
    """
    if len(values) != tasks:
        raise invalid(function, f"{name} must have {tasks} elements, one for each task, not {len(values)}")


def invalid(function: str, reason: str) -> InvalidInput:
    """Return the error of a wrong argument."""
    return InvalidInput(f"tfk8s.parallel.{function}(): {reason}")
