"""Hostile archives for `--get`, from a seed: each has lies about names, sizes, kinds and its end."""

from __future__ import annotations

import io
import json
import tarfile
from random import Random

# Names that lead elsewhere, and names that don't, so that later entries meet what earlier ones have left.
_PARTS = ("a", "b", "x", "..", ".", "", "~", "link", "d" * 250, "\0", "\ud800", "é", "-", "con", "...", ".. ", "..\\")
_PREFIXES = ("", "", "", "", "/", "../", "../../", "./", "/etc/", "link/", "a/", "a/link/", "link/../", "//", "a//")
_SIZES = (0, 0, 1, 3, 3, -1, 5000, 1 << 31, 1 << 60, 1 << 100, True, None, "3", 3.0, [], {})
_KINDS = ("file", "file", "file", "folder", "folder", "link", "end", "device", "", None, 7, [], {})
_NUMBERS = ("0", "0", "0", "0", "0", "1", "-1", "00", "9" * 5000, "0x0", "", "²", " 0")


def entries(seed: int) -> bytes:
    """Return an archive in the format of `packed.pack`."""
    random, data = Random(seed), bytearray()  # noqa: S311 - a seed repeats an archive
    for _ in range(random.randint(1, 12)):
        size = random.choice(_SIZES)
        entry = [
            random.choice(_KINDS),
            f"{random.choice(_NUMBERS)}/{name(random)}",
            size,
            random.choice((True, False, None)),
        ]
        data += json.dumps(entry[: random.choice((4, 4, 4, 4, 3, 2, 1, 0))]).encode() + b"\n"
        if isinstance(size, int) and 0 <= size < 10_000 and random.random() < 0.9:
            data += b"x" * size
    data += random.choice(
        (b'["end", []]\n', b'["end", []]\n', b'["end", [1]]\n', b"[" * 50_000 + b"\n", b"", b"\xff\n")
    )
    return damaged(random, bytes(data))


def tar(seed: int) -> bytes:
    """Return an archive in the format of `script_archive.pack`, with links, devices and names that lead elsewhere."""
    random, sink = Random(seed), io.BytesIO()  # noqa: S311
    with tarfile.open(fileobj=sink, mode=random.choice(("w", "w:gz")), format=random.choice((0, 1, 2))) as files:  # type: ignore[call-overload]
        for _ in range(random.randint(1, 12)):
            member = tarfile.TarInfo(name(random).replace("\0", "").replace("\ud800", "s") or "a")
            member.type = random.choice((b"0", b"0", b"0", b"5", b"5", b"1", b"2", b"3", b"6", b"7", b"S", b"Z"))
            member.linkname = random.choice(("", "..", "../..", "/etc", "a", "link", "../" * 20))
            member.size = size = random.choice((0, 0, 3)) if member.type == b"0" else 0
            member.mode = random.choice((0o644, 0o755, 0o4777, 0))
            try:
                files.addfile(member, io.BytesIO(b"x" * size))
            except ValueError:  # the format has no room for the name
                continue
    return damaged(random, sink.getvalue())


def name(random: Random) -> str:
    """Return a path, which mostly leads out of its folder."""
    depth = random.choice((1, 1, 2, 3, 120))
    return random.choice(_PREFIXES) + "/".join(
        random.choice(_PARTS if random.random() < 0.4 else "abx") for _ in range(depth)
    )


def damaged(random: Random, data: bytes) -> bytes:
    """Return the bytes as they are, cut, or with some of them changed."""
    what = random.random()
    if what < 0.6 or not data:
        return data
    if what < 0.8:
        return data[: random.randrange(len(data))]
    changed = bytearray(data)
    for _ in range(random.randint(1, 8)):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)
