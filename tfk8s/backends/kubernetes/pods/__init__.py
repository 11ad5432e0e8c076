"""Facts that a pod of the API server has: its containers, its events, and the reasons of its state."""
