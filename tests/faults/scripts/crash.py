"""A script that the kernel ends, as for an error in native code."""

import os
import signal

print("a step", flush=True)
os.kill(os.getpid(), signal.SIGSEGV)
