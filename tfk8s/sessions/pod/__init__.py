"""Code that runs in pods beside the tasks. TensorBoard's server also runs on the user's machine."""
