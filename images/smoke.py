"""Shows that TensorFlow works in this image: `docker run --rm --read-only --tmpfs /tmp --network none IMAGE`.

It opens a session on a server of the C library and trains a network with Keras. If the wheel is for GPUs, it also loads
the CUDA libraries. It exits with 1 if something does not work, or if it runs as root.
"""

import ctypes
import os
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

_EXPECTED = 238
_DRIVER = "libcuda.so.1:"


def main() -> None:
    """Run the tests one after the other, and print their results."""
    assert os.getuid() != 0, "this image runs as root"
    print(f"TensorFlow {tf.__version__}, Keras {tf.keras.__version__}, user {os.getuid()}")
    print(f"a session computed {session()}")
    print(f"a network learned y = 2 x: {learned_slope():.2f}")
    if tf.sysconfig.get_build_info()["is_cuda_build"]:
        print(cuda_libraries())
        print(f"computed on {computed_on_gpus()} GPU")


def session() -> int:
    """Run a graph on a server; return its result."""
    server = tf.distribute.Server.create_local_server()
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.int32)
        y = x + tf.constant(_EXPECTED - 2)
        with tf.compat.v1.Session(server.target) as tf_session:
            result = int(tf_session.run(y, {x: 2}))
    assert result == _EXPECTED, result
    return result


def learned_slope() -> float:
    """Fit a line with an optimizer; return the slope."""
    model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
    model.compile(optimizer=tf.keras.optimizers.Adam(0.1), loss="mse")
    x = np.linspace(-1, 1, 64).reshape(-1, 1)
    model.fit(x, 2 * x, epochs=40, verbose=0)
    slope = float(model.get_weights()[0][0][0])
    assert abs(slope - 2) < 0.5, slope
    return slope


def computed_on_gpus() -> int:
    """Multiply matrices on each GPU; return the number of GPUs."""
    gpus = tf.config.list_logical_devices("GPU")
    for gpu in gpus:
        with tf.device(gpu.name):
            assert float(tf.reduce_sum(tf.ones((64, 64)) @ tf.ones((64, 64)))) == 64**3, gpu.name
    return len(gpus)


def cuda_libraries() -> str:
    """Load NVIDIA's libraries, in any order that works; return the count.

    Some of them need the driver's library, which the node provides.
    """
    libraries = list((Path(tf.__file__).parents[1] / "nvidia").glob("*/lib/lib*.so.*"))
    assert libraries, "the CUDA libraries are missing"
    failed: dict[Path, str] = dict.fromkeys(libraries, "")
    count = 0
    while len(failed) != count:
        count = len(failed)
        failed = {path: error for path in failed if (error := _load(path))}
    broken = [f"{path.name}: {error}" for path, error in failed.items() if not error.startswith(_DRIVER)]
    if broken:
        sys.exit("\n".join(broken))
    return f"{len(libraries) - count} CUDA libraries load" + f", {count} can't load without a driver" * bool(count)


def _load(path: Path) -> str:
    try:
        ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    except OSError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main()
