"""The warm pod: its processes, and the streams of its scripts."""
