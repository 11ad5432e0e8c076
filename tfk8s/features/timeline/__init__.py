"""The timeline of a script's steps: the recording, its critical path, and the page."""
