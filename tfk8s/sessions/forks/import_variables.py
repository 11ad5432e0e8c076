"""The variables that a process reads when it imports TensorFlow, which a fork of it no longer reads."""

from __future__ import annotations

from collections.abc import Mapping

# TensorFlow and its libraries read these variables once, when they are loaded or imported. A fork of a process that has
# loaded them does not see a change.
_READ_AT_IMPORT = (
    "ABSL_", "CUDA_", "DNNL_", "GRPC_", "KERAS_", "KMP_", "LD_", "MKL_", "NUMEXPR_", "NVIDIA_", "OMP_", "ONEDNN_",
    "OPENBLAS_", "PYTHON", "TF_", "XLA_",
)  # fmt: skip

# Of these, TensorFlow reads some only when it creates its devices, its threads, a strategy, or its first connection.
READ_LATER = {
    "CUDA_VISIBLE_DEVICES", "TF_CONFIG", "TF_FORCE_GPU_ALLOW_GROWTH", "TF_GRPC_DEFAULT_OPTIONS",
    "TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS",
}  # fmt: skip


def read_at_import(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that TensorFlow reads only when it is imported."""
    return {name: value for name, value in environment.items() if name.startswith(_READ_AT_IMPORT)}
