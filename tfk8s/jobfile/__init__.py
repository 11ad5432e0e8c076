"""Reading a job file: from hostile text to a `JobFile`, or to all that is wrong with it."""
