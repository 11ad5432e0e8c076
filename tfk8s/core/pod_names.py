"""Names in the pods that tfk8s makes, which no job file may use for something else."""

SERVER_CONTAINER = "server"  # of a task
SCRIPT_CONTAINER = "script"
LIFETIME_CONTAINER = "lifetime"  # of the Job that removes a cluster at its limits
CONTAINERS = (SERVER_CONTAINER, SCRIPT_CONTAINER, LIFETIME_CONTAINER)

SHM_FOLDER = "/dev/shm"  # noqa: S108 - the path is in the pod
