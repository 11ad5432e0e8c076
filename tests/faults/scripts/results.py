"""Leaves a file of as many MB as the first argument says; `wait`: before that, waits to be removed."""

import sys
import time
from pathlib import Path

Path("results").write_bytes(bytes(int(sys.argv[1]) << 20))
print("leaves files", flush=True)
if "wait" in sys.argv:
    time.sleep(600)
