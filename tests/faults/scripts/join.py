"""A script of between-graph replication: it joins the server of its task, ps/0."""

import tensorflow.compat.v1 as tf

addresses = {"chief": ["localhost:2222"], "ps": ["localhost:2223"], "worker": ["localhost:2224", "localhost:2225"]}
server = tf.train.Server(addresses, job_name="ps", task_index=0)
print("joins", flush=True)
server.join()
print("joined", flush=True)
