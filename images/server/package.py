"""Replaces the Python package of TensorFlow in the image that has only its C library."""

raise ImportError(
    "this image has TensorFlow's C library only, for tasks: session scripts, and tasks with `preload`, need the image "
    "tfk8s/cpu or tfk8s/gpu"
)
