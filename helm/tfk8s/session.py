"""Runs a session on the master that computes on the tasks of every job. `helm test` runs this file in a pod."""

import os
import socket
import sys
import time

from tfk8s.task import config, probe, wire

WAIT_TIMEOUT = 240  # less than the pod's deadline of 300 s


def wait_for_task(address: str) -> list[probe.Device]:
    """Wait until a task answers; return its devices."""
    deadline = time.monotonic() + WAIT_TIMEOUT
    while True:
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=5) as stream:
                return probe.get_status(stream, timeout=10)
        except (OSError, wire.ProbeError) as error:
            if time.monotonic() > deadline:
                sys.exit(f"the task at {address} does not respond: {error}")
            time.sleep(0.5)


def main() -> None:
    """Run the session and print the result, or exit with an error."""
    cluster = config.derive_cluster(os.environ)
    master = cluster[os.environ["TFK8S_JOB"]][0]
    devices = [device for addresses in cluster.values() for at in addresses.values() for device in wait_for_task(at)]
    # The first and the last task of each job.
    tasks = [(job, index) for job, addresses in cluster.items() for index in sorted({0, len(addresses) - 1})]
    host, _, _ = master.rpartition(":")
    os.environ |= {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2", "no_grpc_proxy": host}
    import tensorflow as tf

    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.int32, [])
        sums = []
        for number, (job, index) in enumerate(tasks):
            with tf.device(f"/job:{job}/task:{index}"):
                sums.append(x + number)
        settings = tf.compat.v1.ConfigProto()
        if any(device.name.startswith(f"/job:{config.OWN_JOB}/") for device in devices):  # they know only themselves
            settings.cluster_def.CopyFrom(tf.train.ClusterSpec(config.lists(cluster)).as_cluster_def())
        with tf.compat.v1.Session(f"grpc://{master}", config=settings) as session:
            computed = [int(value) for value in session.run(sums, {x: 236})]
    if computed != list(range(236, 236 + len(tasks))):
        sys.exit(f"expected 236, 237, ..., but the session computed {computed}")
    names = ", ".join(f"{job}/{index}" for job, index in tasks)
    print(f"a session on grpc://{master} sees {len(devices)} devices, and computed on {names}")


if __name__ == "__main__":
    main()
