"""Code of TensorFlow 2 programs: strategies over a cluster's tasks, and corrections of Keras."""
