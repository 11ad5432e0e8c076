"""An operation of TensorFlow Text, on a worker that has loaded the library by `preload`."""

import os

import tensorflow as tf
import tensorflow_text as text

with tf.Graph().as_default() as graph, tf.device("/job:worker/task:1" if "TFK8S_TARGET" in os.environ else None):
    words = text.WhitespaceTokenizer().tokenize(["two words", "and three more"]).to_tensor()
if "TFK8S_TARGET" in os.environ:
    import tfk8s

    session = tfk8s.session(graph=graph)
else:
    session = tf.compat.v1.Session(graph=graph)
with session:
    print(session.run(words).tolist())
