"""Plain frozen data and rules: no input or output, no TensorFlow, no Kubernetes."""
