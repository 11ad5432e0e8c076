"""Lines of the output of tasks, programs and scripts: which of them users want to see."""
