"""The variables that a process reads when it imports TensorFlow, which a fork of it no longer reads."""

from __future__ import annotations

from collections.abc import Mapping

# TensorFlow, Keras, NumPy and their libraries read these variables once, when they are loaded or imported. A fork of a
# process that has loaded them does not see a change.
_BY_LIBRARIES = (
    "DNNL_", "GCS_", "HDF5_", "KERAS_", "KMP_", "MKL_", "MPL", "NPY_", "NUMEXPR_", "OMP_", "ONEDNN_", "OPENBLAS_",
    "PROTOCOL_BUFFERS_", "TF_", "XLA_",
)  # fmt: skip

# A running interpreter does not see a change of these either: its own, the loader's, and those of libraries of GPUs,
# which a process reads when it first uses a GPU.
_BEFORE_IMPORT = ("ABSL_", "CUDA_", "GRPC_", "LD_", "NVIDIA_", "PYTHON")

# Of these, TensorFlow reads some only when it creates its devices, its threads, a strategy, or its first connection.
# TensorFlow 2.21 calls `getenv` for XLA's and those of determinism after its import, at the first use.
READ_LATER = {
    "CUDA_VISIBLE_DEVICES", "TF_CONFIG", "TF_CUDNN_DETERMINISTIC", "TF_DETERMINISTIC_OPS",
    "TF_FORCE_GPU_ALLOW_GROWTH", "TF_GPU_ALLOCATOR", "TF_GRPC_DEFAULT_OPTIONS", "TF_NUM_INTEROP_THREADS",
    "TF_NUM_INTRAOP_THREADS", "TF_XLA_FLAGS", "XLA_FLAGS",
}  # fmt: skip

# The level of TensorFlow's log changes no result, so a script that sets it keeps the quick start.
_LOG_LEVEL = "TF_CPP_"


def read_at_import(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that TensorFlow reads only when it is imported."""
    return {name: value for name, value in environment.items() if name.startswith(_BY_LIBRARIES + _BEFORE_IMPORT)}


def changes_import(name: str) -> bool:
    """Return whether a script that sets this variable first imports other libraries, or the same with other results."""
    return name.startswith(_BY_LIBRARIES) and name not in READ_LATER and not name.startswith(_LOG_LEVEL)
