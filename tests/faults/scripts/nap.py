"""A script that sleeps in a session, and then runs a step."""

import os
import sys
import time

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
with tf.Session(os.environ["TFK8S_TARGET"]) as session:
    session.run(tf.constant("opened"))
    print("naps", flush=True)
    time.sleep(float(sys.argv[1]))
    print(session.run(tf.constant("done")).decode())
