"""In place of the package, of which this image has the C library alone."""

raise ImportError(
    "this image has TensorFlow's C library only, for tasks: session scripts, and tasks with `preload`, need the image "
    "tfk8s/cpu or tfk8s/gpu"
)
