"""A script that does something else than to run a session."""

import time

print("script is up", flush=True)
time.sleep(600)
