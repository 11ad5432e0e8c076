"""The cluster of sessions: its tasks, and the ClusterSpec that sessions bring to elastic servers."""
