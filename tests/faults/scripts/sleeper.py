"""A script without a session."""

import time

print("script is up", flush=True)
time.sleep(600)
