"""One task of tf.data's service, with `import tensorflow`: task 0 is the dispatcher, the others are workers.

The dispatcher writes its state into a folder, so that running iterations continue after its restart. A worker computes
the datasets of any client, as a TensorFlow server does, so its network must keep others away. Standard library and
TensorFlow only: this file runs in any image that has TensorFlow.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence

from tfk8s.task import server
from tfk8s.task.config import TaskConfig, listening_line
from tfk8s.task.server_options import parse_options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one task until SIGTERM or Ctrl-C.

    Args:
        arguments: the folder for the dispatcher's state, and the flags of `tfk8s server`.
    """
    folder, *flags = sys.argv[1:] if arguments is None else arguments
    return server.run(parse_options(flags), functools.partial(start, folder))


def start(folder: str, config: TaskConfig, _: Sequence[str] = ()) -> str:
    """Start the dispatcher or a worker on other threads, and return the first line of its log.

    A worker waits for the dispatcher, and is in service once it returns.

    Args:
        folder: for the dispatcher's state.
        config: the task.

    Raises:
        ServerError: TensorFlow is missing, the port is in use, or TensorFlow refuses.
    """
    server.require_tensorflow()
    server.check_port(config)
    import tensorflow as tf

    service = tf.data.experimental.service
    dispatcher, own = config.cluster[config.job][0], config.cluster[config.job][config.index]
    role = "a worker of tf.data's service" if config.index else "the dispatcher of tf.data's service"
    global _server  # lives as long as the process
    try:
        if config.index:
            print(f"tfk8s: {config.name} waits for the dispatcher at {dispatcher}", flush=True)
            _server = service.WorkerServer(service.WorkerConfig(dispatcher, worker_address=own, port=config.port))
        else:
            _server = service.DispatchServer(
                service.DispatcherConfig(port=config.port, fault_tolerant_mode=True, work_dir=folder)
            )
    except tf.errors.OpError as error:
        raise server.ServerError(f"TensorFlow can't start {config.name}: {error.message}") from error
    return listening_line(config, str(tf.__version__), role)


_server: object = None

if __name__ == "__main__":
    sys.exit(main())
