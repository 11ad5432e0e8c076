"""A training of one number, which goes on from its last step in /data after each start, and prints each loss."""

import time
from pathlib import Path

STEPS = 150
file = Path("/data/state")
step, weight = (float(text) for text in file.read_text().split()) if file.exists() else (0.0, 0.0)
print(f"begins after step {step:g}", flush=True)
while step < STEPS:
    weight += 0.02 * (3 - weight)
    step += 1
    new = file.with_suffix(".new")
    new.write_text(f"{step!r} {weight!r}")
    new.replace(file)
    print(f"loss {(3 - weight) ** 2!r} after step {step:g}", flush=True)
    time.sleep(0.1)
