"""Scripts that use TensorFlow 2's eager execution and strategies on the tasks of a cluster."""
