"""The networks that the processes of a local cluster reach."""
