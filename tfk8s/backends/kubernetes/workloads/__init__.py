"""The StatefulSets of servers and the Jobs of programs, which together are a cluster's tasks."""
