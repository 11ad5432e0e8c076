"""Scripts and programs of TensorFlow 1."""

from __future__ import annotations

from pathlib import Path

import pytest

# The forms in which programs of TensorFlow 1 import its parts.
IMPORTS = """
import tensorflow as tf
import tensorflow.compat.v1 as tf
from tensorflow import keras
from tensorflow.keras import layers
from tensorflow.keras.layers import Dense
import tensorflow.keras.backend as K
import tensorflow.keras as keras
from tensorflow.python.framework import ops
import tensorflow.python.framework.ops as ops
from tensorflow.core.framework import graph_pb2
import tensorflow.core.framework.graph_pb2
import tensorflow.core.framework.graph_pb2 as graph_pb2
import tensorflow.examples.digits as digits
from tensorflow.train import Saver
from tensorflow.tools.docs import doc_controls
"""

USES = """
import tensorflow as tf
assert tensorflow.core.framework.graph_pb2 is graph_pb2 and tf.python.framework.ops is ops
assert isinstance(tf.Graph(), ops.Graph) and keras.layers.Dense is Dense is layers.Dense is tf.keras.layers.Dense
tf.app.flags.DEFINE_string("log_dir", "logs", "absl has a flag of that name")
def main(_):
    print(tf.app.flags.FLAGS.log_dir, tf.executing_eagerly(), digits.NUMBER)
tf.app.run(main)
"""


@pytest.mark.parametrize("fresh", [False, True])
def test_imports_and_flags(run, pair: str, fresh: bool, tmp_path: Path) -> None:
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples/digits.py").write_text("NUMBER = 8")
    installed = f"import tensorflow; tensorflow.__path__.append({str(tmp_path)!r})  # as in TensorFlow's own folder\n"
    code, out, err = run(pair, installed + IMPORTS + USES, "--log_dir=here", tf1=True, fresh=fresh)
    assert (code, out) == (0, "here False 8\n"), err
