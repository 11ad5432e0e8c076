"""Finds the reason why TensorFlow does not see a task's GPUs, and the line of the log that reports the reason.

TensorFlow itself does not name what is missing. The checks here repeat those of TensorFlow, in an order in which the
first failure explains the others. Standard library only: this file also runs in pods. Of the servers, only
those that lack GPUs import this file.
"""

from __future__ import annotations

import ctypes
import re
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

_GKE_DRIVER = "usr/local/nvidia/lib64"  # GKE mounts the driver's libraries there
_DRIVER = "libcuda.so.1"
# The libraries that TensorFlow opens (MaybeTryDlopenGPULibraries in tsl/platform/default/dso_loader.cc), by CUDA's
# major version. cuDNN has a version of its own.
_CUDA = {
    "11": ("libcudart.so.11.0", "libcublas.so.11", "libcufft.so.10", "libcusolver.so.11", "libcusparse.so.11"),
    "12": ("libcudart.so.12", "libcublas.so.12", "libcufft.so.11", "libcusolver.so.11", "libcusparse.so.12"),
    "13": ("libcudart.so.13", "libcublas.so.13", "libcufft.so.12", "libcusolver.so.12", "libcusparse.so.12"),
}

_UNKNOWN = "TensorFlow's messages in its log may say why"
_LINE = re.compile(r"tfk8s: \S+ sees (\d+) of (\d+) GPUs(?:: (.+))?")
_UNCOMPARED = re.compile(r"tfk8s: .+ has no TensorFlow, so nothing compares the (\d+) GPUs of \S+")

Load = Callable[[str], Any]


def why_unseen(
    required: int,
    tensorflow: str,
    environment: Mapping[str, str],
    load: Load = ctypes.CDLL,
    root: Path = Path("/"),
) -> str:
    """Return why TensorFlow does not see all GPUs of this process; "" if the reason is unknown.

    Args:
        required: the number of GPUs that the task was given.
        tensorflow: the folder of the package `tensorflow`.
        environment: the variables of the process.
        load: opens a library, or raises an OSError.
        root: the folder of the file system.
    """
    build = _build_info(Path(tensorflow))
    place = "the image" if "TFK8S_NAMESPACE" in environment else "this machine"
    if build.get("is_cuda_build") is False and not build.get("is_rocm_build"):
        return f"{place} has TensorFlow for CPUs only"
    if hidden := _why_hidden(required, environment):
        return hidden
    if build.get("is_rocm_build"):
        return "" if (root / "dev/kfd").exists() else "there is no driver for AMD's GPUs: /dev/kfd is missing"
    try:
        driver = load(_DRIVER)
    except OSError as error:
        return _why_no_driver(error, root)
    needed = (*_CUDA.get(str(build.get("cuda_version", "")).partition(".")[0], ()), *_cudnn(build))
    if missing := [name for name in needed if not _loads(name, Path(tensorflow), load)]:
        return f"{place} lacks libraries that TensorFlow needs: {', '.join(missing)}"
    return _why_refused(driver, required, str(build.get("cuda_version", "")))


def _build_info(tensorflow: Path) -> Mapping[str, Any]:
    """Return what TensorFlow's build wrote about itself; nothing if the file is missing or has another form."""
    try:
        return dict(runpy.run_path(str(tensorflow / "python/platform/build_info.py"))["build_info"])
    except Exception:  # another build's file may raise anything
        return {}


def _cudnn(build: Mapping[str, Any]) -> Iterator[str]:
    if version := build.get("cudnn_version"):
        yield f"libcudnn.so.{version}"


def _why_hidden(required: int, environment: Mapping[str, str]) -> str:
    """Return the variable that hides GPUs, or ""."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and len(list(_visible(visible))) < required:
        return f'CUDA_VISIBLE_DEVICES="{visible}" hides them'
    runtime = environment.get("NVIDIA_VISIBLE_DEVICES")
    return f'NVIDIA_VISIBLE_DEVICES="{runtime}" hides them' if runtime in ("void", "none", "") else ""


def _visible(devices: str) -> Iterator[str]:
    """Yield the devices of CUDA_VISIBLE_DEVICES up to the first invalid one, as CUDA reads the variable."""
    for device in devices.split(","):
        if not device.strip().isdecimal() and not device.strip().startswith(("GPU-", "MIG-")):
            return
        yield device


def _why_no_driver(error: OSError, root: Path) -> str:
    if (root / _GKE_DRIVER / _DRIVER).exists():
        return f"the driver's {_DRIVER} is in /{_GKE_DRIVER}, and LD_LIBRARY_PATH does not name that folder"
    if not list((root / "dev").glob("nvidia[0-9]*")):
        return f"there is no NVIDIA driver: /dev/nvidia0 and {_DRIVER} are missing"
    return f"the driver's {_DRIVER} can't be loaded: {error}"


def _loads(name: str, tensorflow: Path, load: Load) -> bool:
    """Return whether a library can be loaded: from where TensorFlow's own library looks, too (its RUNPATH)."""
    for path in (name, *map(str, tensorflow.parent.glob(f"nvidia/*/lib/{name}"))):
        try:
            load(path)
        except OSError:
            continue
        return True
    return False


def _why_refused(driver: Any, required: int, cuda: str) -> str:
    """Return why the driver offers too few GPUs to this process, by the functions of CUDA's driver; "" if unknown."""
    version, count, name = ctypes.c_int(), ctypes.c_int(), ctypes.c_char_p()
    if code := driver.cuInit(0):
        driver.cuGetErrorName(code, ctypes.byref(name))
        return f"the NVIDIA driver refuses: {(name.value or b'').decode() or code}"
    driver.cuDriverGetVersion(ctypes.byref(version))  # 12040 is 12.4
    major = cuda.partition(".")[0]
    if major.isdecimal() and version.value // 1000 < int(major):
        supported = f"{version.value // 1000}.{version.value % 1000 // 10}"
        return f"the NVIDIA driver is too old: it supports CUDA {supported}, and TensorFlow needs CUDA {cuda}"
    driver.cuDeviceGetCount(ctypes.byref(count))
    return f"the NVIDIA driver shows {count.value} of them" if count.value < required else ""


def seen_line(name: str, required: int) -> str:
    """Return the line of a program's log about GPUs that TensorFlow sees."""
    return f"tfk8s: {name} sees {required} of {required} GPUs"


def unseen_line(name: str, seen: int, required: int, reason: str) -> str:
    """Return the line of a task's log about GPUs that TensorFlow does not see."""
    return f"tfk8s: {name} sees {seen} of {required} GPUs: {reason or _UNKNOWN}"


def uncompared_line(name: str, required: int) -> str:
    """Return the line of the log of a program without TensorFlow, whose GPUs nothing compares."""
    return f"tfk8s: {sys.executable} has no TensorFlow, so nothing compares the {required} GPUs of {name}"


def parse_line(line: str) -> tuple[int, int, str] | None:
    """Return the GPUs that TensorFlow sees, those of the task, and the reason; None for another line.

    Args:
        line: a `seen_line`, which has no reason, an `unseen_line`, or an `uncompared_line`, which counts as seen.
    """
    if match := _UNCOMPARED.fullmatch(line):
        return int(match[1]), int(match[1]), ""
    match = _LINE.fullmatch(line)
    return (int(match[1]), int(match[2]), match[3] or "") if match else None
