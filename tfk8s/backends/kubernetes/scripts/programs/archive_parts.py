"""Cuts the archive of a folder into parts, of which few change when a file changes.

A large file has parts of its own. Each other file belongs to a group by the hash of its path. A group that is too large
for one part is halved by the next bit of these hashes. So the files before a file do not decide which part has the
file.
"""

from __future__ import annotations

import gzip
import hashlib
import itertools
import zlib
from collections.abc import Iterator, Mapping, Sequence

from tfk8s.backends.kubernetes.scripts.script_archive import COMPRESS_LEVEL, TAR_END

_END = gzip.compress(TAR_END, mtime=0)
_HELD = 1 << 18  # more bytes than zlib holds back
_GZIP = 16 + zlib.MAX_WBITS  # the format, for zlib


def cut(members: Mapping[str, bytes], limit: int, most: int) -> list[bytes]:
    """Return the parts of a compressed tar archive, in their order; each is a member of the gzip format.

    Args:
        members: the archive's members, headers and contents, by their paths.
        limit: the bytes that a part may have.
        most: of parts. Where files leave too much of their parts empty, all parts are full, and a change of a file
            changes later parts.
    """
    limit -= len(_END)
    full = _compress(b"".join(members.values()), limit)
    parts = list(itertools.islice(full, 2))
    if len(parts) > 1:
        by_files = [*_by_files(members, limit)]
        parts = by_files if len(by_files) <= most else [*parts, *full]
    return [*parts[:-1], parts[-1] + _END]


def _by_files(members: Mapping[str, bytes], limit: int) -> Iterator[bytes]:
    """Yield the parts of large files, then those of groups."""
    small = []
    for path, member in members.items():
        alone = list(_compress(member, limit)) if len(member) > limit // 2 else []
        if sum(map(len, alone)) > limit // 2:
            yield from alone
        else:
            digest = hashlib.sha256(path.encode(errors="surrogateescape")).digest()
            small.append((int.from_bytes(digest), member))
    yield from _grouped(small, limit)


def _grouped(members: Sequence[tuple[int, bytes]], limit: int) -> Iterator[bytes]:
    """Yield the parts of groups of members, which are given with their hashes."""
    parts = list(itertools.islice(_compress(b"".join(member for _, member in members), limit), 2))
    if len(parts) == 1:
        yield from parts
        return
    for half in (0, 1):
        if halved := [(bits >> 1, member) for bits, member in members if bits & 1 == half]:
            yield from _grouped(halved, limit)


def _compress(content: bytes, limit: int) -> Iterator[bytes]:
    """Yield members of the gzip format that have the content, each as full as the limit allows."""
    compressor, done = zlib.compressobj(COMPRESS_LEVEL, wbits=_GZIP), b""
    for begin in range(0, len(content), size := max(limit // 32, 1)):
        block, before = content[begin : begin + size], compressor.copy()
        more = done + compressor.compress(block)
        if len(more) + _HELD > limit and len(more) + len(compressor.copy().flush()) > limit:
            yield done + before.flush()
            compressor = zlib.compressobj(COMPRESS_LEVEL, wbits=_GZIP)
            more = compressor.compress(block)
        done = more
    yield done + compressor.flush()
