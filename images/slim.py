"""Removes the files of a folder of packages that nothing needs at run time. Runs once, during the build of an image.

    python slim.py FOLDER               keeps all modules that scripts may import
    python slim.py FOLDER PACKAGE.py    keeps TensorFlow's C library, with PACKAGE.py in place of its Python code

It removes TensorFlow's C++ headers (for builds of custom operations), the tests of packages, and the symbol tables of
TensorFlow's libraries, which only debuggers read. It also removes `libclang` from TensorFlow's metadata. Nothing
imports `libclang`, and no image has it; `pip install` would warn about it each time.
"""

import shutil
import struct
import sys
from pathlib import Path

_LIBRARIES = ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2")
_NOT_AT_RUN_TIME = ("include", "xla_aot_runtime_src")
_NOT_REQUIRED = "Requires-Dist: libclang"


def main(packages: Path, package: "Path | None" = None) -> None:
    """Shrink the folder of packages; `package`, if given, replaces all Python code."""
    tensorflow = packages / "tensorflow"
    if package:
        _keep_only(packages, [tensorflow, *packages.glob("tensorflow*.dist-info")])
        _keep_only(tensorflow, [*(tensorflow / name for name in _LIBRARIES), tensorflow / "THIRD_PARTY_NOTICES.txt"])
        shutil.copy(package, tensorflow / "__init__.py")
    for name in _NOT_AT_RUN_TIME:
        shutil.rmtree(tensorflow / name, ignore_errors=True)
    for metadata in packages.glob("tensorflow*.dist-info/METADATA"):
        lines = metadata.read_text("utf-8").splitlines(keepends=True)
        metadata.write_text("".join(line for line in lines if not line.startswith(_NOT_REQUIRED)), "utf-8")
    for tests in [path for path in packages.glob("*/**/tests") if path.is_dir() and "tensorflow" not in path.parts]:
        shutil.rmtree(tests)
    for library in tensorflow.rglob("*.so*"):
        drop_symbol_table(library)


def _keep_only(folder: Path, kept: "list[Path]") -> None:
    for path in set(folder.iterdir()) - set(kept):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def drop_symbol_table(library: Path) -> None:
    """Truncate a library after the last byte that its program headers load; drop its section headers (elf(5))."""
    with library.open("r+b") as file:
        header = bytearray(file.read(64))
        if header[:5] != b"\x7fELF\x02":
            return
        (table,) = struct.unpack_from("<Q", header, 32)
        size, count = struct.unpack_from("<HH", header, 54)
        file.seek(table)
        segments = [struct.unpack_from("<IIQQQQ", file.read(size)) for _ in range(count)]
        file.truncate(max(offset + length for _, _, offset, _, _, length in segments))
        struct.pack_into("<Q", header, 40, 0)  # the offset of the section headers
        struct.pack_into("<HH", header, 60, 0, 0)  # their number, and the index of the section with their names
        file.seek(0)
        file.write(header)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
