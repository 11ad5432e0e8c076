"""The fork server, which has imported TensorFlow, and what starts, watches and ends its forks."""
