"""Gives a script or a program the API of TensorFlow 1.

`tensorflow.compat.v1` has that API, and lacks parts that `import` finds in TensorFlow itself: `tensorflow.python`,
`tensorflow.core`, with Keras 3 `tensorflow.keras`, and what users install beside them, such as `tensorflow/examples`.
Standard library and TensorFlow only: this file also runs in pods.
"""

from __future__ import annotations

import logging
import sys
import types

_OWN_FLAG = "log_dir"  # of absl.logging; only absl's functions that write files read it


def give() -> None:
    """Make `import tensorflow` give `tensorflow.compat.v1`, with TensorFlow 1's behaviour."""
    import absl.flags
    import absl.logging
    import tensorflow
    import tensorflow.compat.v1 as tf1

    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it warns that resource variables are disabled, as intended
    tf1.disable_v2_behavior()
    logger.setLevel(level)
    fill(tf1, tensorflow)
    sys.modules["tensorflow"] = tf1
    absl.flags.FLAGS[_OWN_FLAG].allow_override = True  # scripts may define the flag, as before TensorFlow 1 had absl


def fill(package: types.ModuleType, other: types.ModuleType) -> None:
    """Give a package what it lacks: the attributes, the submodules and the folders of another package."""
    package.__path__ = list(dict.fromkeys((*package.__path__, *other.__path__)))
    prefix = f"{other.__name__}."
    submodules = {name.removeprefix(prefix): part for name, part in sys.modules.items() if name.startswith(prefix)}
    present = set(dir(package))
    for name, part in {**submodules, **vars(other)}.items():  # TensorFlow has no attributes `python` and `core`
        if name not in present and not name.startswith("_") and "." not in name:
            setattr(package, name, part)
