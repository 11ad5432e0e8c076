"""The reasons why TensorFlow does not see GPUs, with a fake driver, fake libraries and a fake file system."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tfk8s.task import gpus

CUDA = "('is_cuda_build', True), ('is_rocm_build', False), ('cuda_version', '12.5.1'), ('cudnn_version', '9')"
ROCM = "('is_cuda_build', False), ('is_rocm_build', True)"
CPU = "('is_cuda_build', False), ('is_rocm_build', False)"
LIBRARIES = {"libcudart.so.12", "libcublas.so.12", "libcufft.so.11", "libcusolver.so.11", "libcusparse.so.12"}
ALL = {"libcuda.so.1", "libcudnn.so.9", *LIBRARIES}
POD = {"TFK8S_NAMESPACE": "ns"}


class Driver:
    """The functions of CUDA's driver."""

    def __init__(self, devices: int = 2, version: int = 12080, code: int = 0) -> None:
        self._devices, self._version, self._code = devices, version, code

    def cuInit(self, flags: int) -> int:  # noqa: N802 - CUDA's name, as all below
        assert flags == 0
        return self._code

    def cuGetErrorName(self, code: int, name: Any) -> int:  # noqa: N802
        ctypes.cast(name, ctypes.POINTER(ctypes.c_char_p))[0] = b"CUDA_ERROR_NO_DEVICE" if code == 100 else b"?"
        return 0

    def cuDriverGetVersion(self, version: Any) -> int:  # noqa: N802
        ctypes.cast(version, ctypes.POINTER(ctypes.c_int))[0] = self._version
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        ctypes.cast(count, ctypes.POINTER(ctypes.c_int))[0] = self._devices
        return 0


def why(
    tmp_path: Path, build: str = CUDA, environment: Mapping[str, str] = POD, libraries: set[str] = ALL,
    files: tuple[str, ...] = (), driver: Driver | None = None,
) -> str:  # fmt: skip
    """Return the reason for 2 GPUs, on a machine with these libraries and files."""
    info = tmp_path / "site/tensorflow/python/platform/build_info.py"
    for file in (info, *(tmp_path / name for name in files)):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    if build:
        info.write_text(f"import collections\nbuild_info = collections.OrderedDict([{build}])\n")

    def load(name: str) -> Driver:
        if name not in libraries and not Path(name).is_absolute():
            raise OSError(f"{name}: cannot open shared object file: No such file or directory")
        return driver or Driver()

    return gpus.why_unseen(2, str(tmp_path / "site/tensorflow"), environment, load, tmp_path)


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        ({"build": CPU}, "the image has TensorFlow for CPUs only"),
        ({"build": CPU, "environment": {}}, "this machine has TensorFlow for CPUs only"),
        ({"environment": {"CUDA_VISIBLE_DEVICES": "-1"}}, 'CUDA_VISIBLE_DEVICES="-1" hides them'),
        ({"environment": {"CUDA_VISIBLE_DEVICES": ""}}, 'CUDA_VISIBLE_DEVICES="" hides them'),
        ({"environment": {"CUDA_VISIBLE_DEVICES": "0,-1,1"}}, 'CUDA_VISIBLE_DEVICES="0,-1,1" hides them'),
        ({"environment": {"CUDA_VISIBLE_DEVICES": "GPU-8f, 1"}}, ""),
        ({"environment": {"NVIDIA_VISIBLE_DEVICES": "void"}}, 'NVIDIA_VISIBLE_DEVICES="void" hides them'),
        ({"build": ROCM}, "there is no driver for AMD's GPUs: /dev/kfd is missing"),
        ({"build": ROCM, "files": ("dev/kfd",)}, ""),
        ({"libraries": set()}, "there is no NVIDIA driver: /dev/nvidia0 and libcuda.so.1 are missing"),
        (
            {"libraries": set(), "files": ("dev/nvidia0",)},
            (
                "the driver's libcuda.so.1 can't be loaded: libcuda.so.1: cannot open shared object file: "
                "No such file or directory"
            ),
        ),
        (
            {"libraries": set(), "files": ("usr/local/nvidia/lib64/libcuda.so.1",)},
            "the driver's libcuda.so.1 is in /usr/local/nvidia/lib64, and LD_LIBRARY_PATH does not name that folder",
        ),
        (
            {"libraries": ALL - {"libcudnn.so.9", "libcufft.so.11"}},
            "the image lacks libraries that TensorFlow needs: libcufft.so.11, libcudnn.so.9",
        ),
        ({"libraries": ALL - {"libcudnn.so.9"}, "files": ("site/nvidia/cudnn/lib/libcudnn.so.9",)}, ""),
        ({"driver": Driver(code=100)}, "the NVIDIA driver refuses: CUDA_ERROR_NO_DEVICE"),
        (
            {"driver": Driver(version=11040)},
            "the NVIDIA driver is too old: it supports CUDA 11.4, and TensorFlow needs CUDA 12.5.1",
        ),
        ({"driver": Driver(devices=1)}, "the NVIDIA driver shows 1 of them"),
        ({}, ""),
        ({"build": ""}, ""),
        ({"build": "not Python"}, ""),
    ],
)
def test_the_reason(tmp_path: Path, machine: dict[str, Any], reason: str) -> None:
    assert why(tmp_path, **machine) == reason


@pytest.mark.parametrize(
    ("reason", "words"),
    [("the image is bad: no", "the image is bad: no"), ("", "TensorFlow's messages in its log may say why")],
)
def test_the_line_of_the_log_is_read_back(reason: str, words: str) -> None:
    line = gpus.unseen_line("worker/0", 0, 1, reason)
    assert line == f"tfk8s: worker/0 sees 0 of 1 GPUs: {words}"
    assert gpus.parse_line(line) == (0, 1, words)


def test_the_line_of_a_program_that_sees_its_gpus_is_read_back() -> None:
    assert gpus.parse_line(gpus.seen_line("worker/0", 2)) == (2, 2, "")


def test_another_line_has_no_reason() -> None:
    assert gpus.parse_line("tfk8s: worker/0 alone listens on port 2222: TensorFlow 2.21.0, 1 CPU") is None
