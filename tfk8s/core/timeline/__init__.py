"""The timeline of steps: recorded data, and rules that read the data."""
