"""The CPU, memory, network and GPUs that tasks and scripts use."""
