"""A program of TensorFlow 1 that starts once for each task: between-graph replication.

A ps only waits. Each worker builds its own copy of the graph, with the variables on the ps, and trains on its own
batches of small pictures of ten digits. The pictures are drawn here: a pattern for each digit, and noise.
"""

import numpy as np
import tensorflow as tf

flags = tf.app.flags
flags.DEFINE_string("job_name", None, "ps or worker")
flags.DEFINE_integer("task_index", None, "the index of this task; worker 0 is the chief")
flags.DEFINE_string("ps_hosts", "localhost:2222", "host:port of each ps, with commas between")
flags.DEFINE_string("worker_hosts", "localhost:2223,localhost:2224", "host:port of each worker")
flags.DEFINE_boolean("sync_replicas", False, "each step averages the gradients of all workers")
flags.DEFINE_integer("train_steps", 1000, "the number of steps of all workers together")
flags.DEFINE_integer("batch_size", 50, "pictures in a batch")
FLAGS = flags.FLAGS

PIXELS, DIGITS = 64, 10
PATTERNS = np.random.RandomState(0).normal(size=[DIGITS, PIXELS])


def pictures(random, count):
    digits = random.randint(DIGITS, size=count)
    return PATTERNS[digits] + random.normal(size=[count, PIXELS]), digits


def layer(name, values, size):
    with tf.variable_scope(name):
        weights = tf.get_variable("weights", [values.shape[1], size])
        return tf.matmul(values, weights) + tf.get_variable("biases", [size], initializer=tf.zeros_initializer())


def main(_):
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
        print(f"ps {FLAGS.task_index} ends")
        return

    is_chief = FLAGS.task_index == 0
    worker = f"/job:worker/task:{FLAGS.task_index}"
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=worker)):
        images = tf.placeholder(tf.float32, [None, PIXELS])
        labels = tf.placeholder(tf.int32, [None])
        logits = layer("digits", tf.nn.relu(layer("hidden", images, 32)), DIGITS)
        loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
        right = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1, output_type=tf.int32), labels), tf.float32))
        step = tf.train.get_or_create_global_step()
        optimizer = tf.train.AdamOptimizer(0.01)
        hooks = [tf.train.StopAtStepHook(last_step=FLAGS.train_steps)]
        if FLAGS.sync_replicas:
            workers = cluster.num_tasks("worker")
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, workers, workers)
            hooks.append(optimizer.make_session_run_hook(is_chief, num_tokens=0))
        train = optimizer.minimize(loss, global_step=step)

    random = np.random.RandomState(FLAGS.task_index + 1)
    # A worker needs the ps and itself, not the other workers, which may start later.
    config = tf.ConfigProto(device_filters=["/job:ps", worker])
    steps = accuracy = 0
    # At the end, a queue of the synchronous chief keeps one thread busy: do not wait two minutes for it.
    with tf.train.MonitoredTrainingSession(
        server.target, is_chief, hooks=hooks, config=config, stop_grace_period_secs=1
    ) as session:
        print(f"worker {FLAGS.task_index}: training begins", flush=True)
        while not session.should_stop():
            drawn, digits = pictures(random, FLAGS.batch_size)
            _, accuracy = session.run([train, right], {images: drawn, labels: digits})
            steps += 1
    print(f"worker {FLAGS.task_index}: {steps} steps, accuracy {accuracy:.2f}")


if __name__ == "__main__":
    tf.app.run()
