"""Replaces `listen` in TensorFlow's libraries by a function that binds the socket to the loopback device first.

gRPC in these libraries calls `listen` of libc by a table of the dynamic linker (ELF's global offset table). The table's
entry is replaced. Standard library only: processes of a cluster run this file without the package.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Callable, Iterator
from typing import Any

_TENSORFLOW = b"/tensorflow/"  # in the paths of its libraries

_libc = ctypes.CDLL(None, use_errno=True)
_Listen = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, use_errno=True)
_hooks: list[object] = []  # which the libraries call until the end of the process


def hook(bind: Callable[[int], None]) -> int:
    """Replace `listen` in the libraries that are loaded; return the number of replaced entries.

    Args:
        bind: binds a descriptor's socket, or raises an OSError.
    """

    def listen_on_loopback(descriptor: int, backlog: int) -> int:
        try:
            bind(descriptor)
        except OSError as error:
            ctypes.set_errno(error.errno or 1)
            return -1
        result: int = _libc.listen(descriptor, backlog)
        return result

    places = [place for base, dynamic in _libraries() for place in _entries(base, dynamic, b"listen")]
    replacement = _Listen(listen_on_loopback)
    _hooks.append(replacement)
    return sum(_replace(place, replacement) for place in places)


class _ProgramHeader(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_uint32), ("flags", ctypes.c_uint32),
        *((name, ctypes.c_uint64) for name in ("offset", "address", "physical", "file_size", "size", "alignment")),
    )  # fmt: skip


class _Loaded(ctypes.Structure):
    """A loaded object, as dl_iterate_phdr(3) describes it."""

    _fields_ = (
        ("base", ctypes.c_uint64), ("name", ctypes.c_char_p), ("headers", ctypes.POINTER(_ProgramHeader)),
        ("count", ctypes.c_uint16),
    )  # fmt: skip


_OnLoaded = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Loaded), ctypes.c_size_t, ctypes.c_void_p)

# Entries of an object's dynamic section, and the kind of its program header (elf(5)).
_PLT_SIZE, _STRINGS, _SYMBOLS, _RELOCATIONS, _RELOCATIONS_SIZE, _STRINGS_SIZE, _PLT = 2, 5, 6, 7, 8, 10, 23
_DYNAMIC = 2
_ENTRY = struct.Struct("=qQ")  # of the dynamic section: the tag, the value
_RELOCATION = struct.Struct("=QIIq")  # the place, the kind, the symbol's number, the addend
_SYMBOL_BYTES, _KIND_OFFSET = 24, 12


def _libraries() -> list[tuple[int, dict[int, int]]]:
    """Return the address of each loaded library of TensorFlow, and its dynamic section."""
    found: list[tuple[int, dict[int, int]]] = []

    def on_loaded(item: Any, _size: int, _data: object) -> int:
        loaded = item.contents
        if _TENSORFLOW in (loaded.name or b""):
            headers = (loaded.headers[number] for number in range(loaded.count))
            sections = [_section(loaded.base, header.address) for header in headers if header.kind == _DYNAMIC]
            found.extend((loaded.base, section) for section in sections)
        return 0

    _libc.dl_iterate_phdr(_OnLoaded(on_loaded), None)
    return found


def _section(base: int, address: int) -> dict[int, int]:
    entries: dict[int, int] = {}
    place = base + address
    while (entry := _ENTRY.unpack(ctypes.string_at(place, _ENTRY.size)))[0]:
        entries[entry[0]] = entry[1]
        place += _ENTRY.size
    for tag in (_STRINGS, _SYMBOLS, _RELOCATIONS, _PLT):  # glibc makes these addresses absolute
        if 0 < entries.get(tag, 0) < base:
            entries[tag] += base
    return entries


def _entries(base: int, dynamic: dict[int, int], name: bytes) -> Iterator[int]:
    """Yield the places in memory that lead an object's calls to a function of another object."""
    symbols = dynamic[_SYMBOLS], dynamic[_STRINGS] - dynamic[_SYMBOLS]  # the linker puts the strings after the symbols
    for text in _find(dynamic[_STRINGS], dynamic[_STRINGS_SIZE], name + b"\0"):
        for symbol in _find(*symbols, struct.pack("=I", text), _SYMBOL_BYTES):
            number = struct.pack("=I", symbol // _SYMBOL_BYTES)
            for table, size in ((_PLT, _PLT_SIZE), (_RELOCATIONS, _RELOCATIONS_SIZE)):
                at = dynamic.get(table, 0)
                for found in _find(at, dynamic.get(size, 0), number, _RELOCATION.size, _KIND_OFFSET):
                    yield base + _RELOCATION.unpack(ctypes.string_at(at + found, _RELOCATION.size))[0]


def _find(address: int, size: int, wanted: bytes, stride: int = 1, within: int = 0) -> Iterator[int]:
    """Yield the offsets of the rows of a table in memory that have bytes at a place.

    Args:
        address: the table's.
        size: the table's, in bytes.
        wanted: the bytes.
        stride: the size of a row.
        within: the place of the bytes in a row.
    """
    start = 0
    while found := _memmem(address + start, size - start, wanted, len(wanted)):
        offset = found - address
        if offset % stride == within:
            yield offset - within
        start = offset + 1


_memmem = _libc.memmem
_memmem.restype = ctypes.c_void_p
_memmem.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)
_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE


def _replace(place: int, replacement: Any) -> bool:
    page = place & -mmap.PAGESIZE
    if _libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), _READ_WRITE) != 0:
        return False
    ctypes.c_void_p.from_address(place).value = ctypes.cast(replacement, ctypes.c_void_p).value
    return True
