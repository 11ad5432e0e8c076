"""Code that runs tf.data's service as a task."""
