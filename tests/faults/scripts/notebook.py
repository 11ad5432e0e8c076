"""A user's program, such as a notebook: a long step of a session that the program opens.

notebook.py "" | NAMESPACE     of a cluster on this machine, or on Kubernetes, by its name
notebook.py grpc://…           TensorFlow's own, at an address that `tfk8s connect` has printed
"""

import sys

import tensorflow as tf

import tfk8s

where = sys.argv[1]
graph = tf.Graph()
with graph.as_default(), tf.device("/job:worker/task:1"):
    busy = tf.compat.v1.while_loop(lambda i, x: i < 2_000_000_000, lambda i, x: (i + 1, tf.sin(x)), (0, 1.0))[1]

if where.startswith("grpc://"):
    session = tf.compat.v1.Session(where, graph=graph)
else:
    session = tfk8s.connect("faults", local=not where, namespace=where or None).session(graph=graph)
print("during", flush=True)
try:
    session.run(busy)
except tfk8s.TaskError as error:
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
