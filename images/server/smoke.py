"""Shows that a task's server can start in this image: `docker run --rm --read-only --tmpfs /tmp IMAGE`.

It exits with 1 if TensorFlow's C library lacks a function, or if it runs as root.
"""

import ctypes
import importlib.util
import os
from pathlib import Path

assert os.getuid() != 0, "this image runs as root"
folder = Path(importlib.util.find_spec("tensorflow").submodule_search_locations[0])
library = ctypes.CDLL(str(folder / "libtensorflow_cc.so.2"), ctypes.RTLD_GLOBAL)
for name in ("TF_NewServer", "TF_ServerStart", "TF_ServerTarget"):
    getattr(library, name)
library.TF_Version.restype = ctypes.c_char_p
print(f"TensorFlow {library.TF_Version().decode()}'s C library, user {os.getuid()}")
