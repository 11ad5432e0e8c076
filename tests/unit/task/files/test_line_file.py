"""Lines of files."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tfk8s.task.files import line_file


@given(st.lists(st.text("a\n", max_size=6).map(str.encode), max_size=6), st.integers(1, 20))
def test_a_tail_has_all_whole_lines_that_fit(chunks: list[bytes], size: int) -> None:
    content = b"".join(chunks)
    ends = [0, *(place + 1 for place, byte in enumerate(content) if byte == ord("\n")), len(content)]
    assert line_file.tail(chunks, size) == next(content[end:] for end in ends if len(content) - end <= size)
