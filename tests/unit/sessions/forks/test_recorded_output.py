"""The log of what a script on this machine prints."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tfk8s.sessions.forks.recorded_output import MAX_BYTES, OutputLog, RecordedFile, record

RECORD = "import sys; from tfk8s.sessions.forks.recorded_output import record; record(sys.argv[1])\n"
PROPERTIES = """
import os
for stream in (sys.stdout, sys.stderr):
    assert stream is getattr(sys, f"__{stream.name[1:-1]}__")
    found = (stream.name, stream.mode, stream.fileno(), stream.encoding, stream.errors, stream.line_buffering,
             stream.write_through, stream.isatty(), stream.buffer.fileno(), stream.newlines)
    os.write(3, f"{found}\\n".encode())
"""


def texts(path: Path) -> list[str]:
    """Return the texts of a log's lines, whose times come in order."""
    lines = [line.split(" ", 2) for line in path.read_bytes().decode(errors="replace").split("\n")[:-1]]
    assert all(run == "0" and time.endswith("Z") for time, run, _ in lines)
    assert [time for time, _, _ in lines] == sorted(time for time, _, _ in lines)
    return [text for _, _, text in lines]


def run(code: str, *options: str, log: Path, **keywords: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, *options, "-c", RECORD + code, str(log)]
    return subprocess.run(command, check=False, timeout=60, **keywords)  # type: ignore[call-overload, no-any-return]


def test_a_log_has_whole_lines_with_their_time(tmp_path: Path) -> None:
    log = OutputLog(tmp_path / "log")
    log.add(1, b"one\ntw")
    log.add(2, b"error\n")
    log.add(1, b"o\nthree")
    assert texts(tmp_path / "log") == ["one", "error", "two"]
    log.end()
    assert texts(tmp_path / "log") == ["one", "error", "two", "three"]
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_a_log_keeps_the_last_mebibyte(tmp_path: Path) -> None:
    log = OutputLog(tmp_path / "log")
    for number in range(300):
        log.add(1, b"%d %b\n" % (number, b"x" * 20_000))
    found = texts(tmp_path / "log")
    assert MAX_BYTES * 0.9 < (tmp_path / "log").stat().st_size <= 2 * MAX_BYTES + 20_000
    assert [line.split()[0] for line in found] == [str(number) for number in range(300)][-len(found) :]
    assert list(tmp_path.iterdir()) == [tmp_path / "log"]


@pytest.mark.programs
def test_a_fork_does_not_write_more_than_a_log_may_have(tmp_path: Path) -> None:
    log, path = OutputLog(tmp_path / "log"), tmp_path / "log"
    if (child := os.fork()) == 0:
        for number in range(300):
            log.add(1, b"%d %b\n" % (number, b"x" * 20_000))
        os._exit(0)
    os.waitpid(child, 0)
    assert 2 * MAX_BYTES < path.stat().st_size <= 2 * MAX_BYTES + 20_000
    log.add(1, b"of the owner\n")  # which has written little
    assert path.stat().st_size <= MAX_BYTES
    assert texts(path)[-1] == "of the owner"


def test_a_progress_bar_takes_no_memory(tmp_path: Path) -> None:
    log = OutputLog(tmp_path / "log")
    for number in range(100_000):
        log.add(2, b"\r%d of 100000" % number)
    log.add(2, b"\n")
    (line,) = texts(tmp_path / "log")
    assert line == "99999 of 100000"


def test_threads_lose_no_line(tmp_path: Path) -> None:
    log = OutputLog(tmp_path / "log")

    def write(stream: int) -> None:
        for number in range(2000):
            log.add(stream, b"%d %d\n" % (stream, number))

    threads = [threading.Thread(target=write, args=(stream,)) for stream in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.end()
    found = texts(tmp_path / "log")
    assert sorted(found) == sorted(f"{stream} {number}" for stream in range(4) for number in range(2000))
    assert [line for line in found if line[0] == "3"] == [f"3 {number}" for number in range(2000)]


def test_a_log_that_is_gone_or_a_link_disturbs_nobody(tmp_path: Path) -> None:
    target, end = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT), tmp_path / "end"
    end.touch()
    (tmp_path / "link").symlink_to(end)
    assert (record(str(tmp_path / "none" / "log")), record(str(tmp_path / "link"))) == (None, None)
    file = RecordedFile(target, OutputLog(tmp_path / "log"))
    (tmp_path / "log").unlink()
    assert (file.write(b"a\n"), file.write(bytearray(b"b\n")), file.write(memoryview(b"c\n"))) == (2, 2, 2)
    assert ((tmp_path / "out").read_bytes(), end.read_bytes()) == (b"a\nb\nc\n", b"")
    os.close(target)


def test_what_a_descriptor_does_not_take_is_no_part_of_the_log(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        file = RecordedFile(full.fileno(), OutputLog(tmp_path / "log"))
        with pytest.raises(OSError, match="No space left"):
            file.write(b"a\n")
    assert texts(tmp_path / "log") == []


@pytest.mark.programs
@pytest.mark.parametrize("options", [(), ("-u",)])
@pytest.mark.parametrize("on_terminal", [False, True])
def test_streams_are_as_before(tmp_path: Path, options: tuple[str, ...], on_terminal: bool) -> None:
    outcomes = []
    for prelude in (RECORD, "import sys\n"):
        reader, writer = os.pipe()
        (near, far) = pty.openpty() if on_terminal else os.pipe()
        command = [sys.executable, *options, "-c", f"{prelude}import os; os.dup2({writer}, 3)\n{PROPERTIES}"]
        subprocess.run([*command, str(tmp_path / "log")], stdout=far, stderr=far, pass_fds=[writer, 3], check=True)
        os.close(writer)
        with open(reader, "rb") as said:
            outcomes.append(said.read())
        os.close(near)
        os.close(far)
    assert outcomes[0] == outcomes[1] != b""


@pytest.mark.programs
@pytest.mark.parametrize("options", [(), ("-u",)])
def test_bytes_reach_their_stream_and_the_log(tmp_path: Path, options: tuple[str, ...]) -> None:
    code = r"""
import os, subprocess
print("out", 1)
sys.stderr.write("err\n")
sys.stdout.buffer.write(b"\xff\0\r\n")
sys.stdout.flush()
if os.fork() == 0:
    print("of a fork")
    sys.exit()
os.wait()
subprocess.run(["echo", "of a program"])
print("end", end="")
sys.exit(7)
"""
    ended = run(code, *options, log=tmp_path / "log", capture_output=True)
    assert (ended.returncode, ended.stderr) == (7, b"err\n")
    assert ended.stdout == b"out 1\n\xff\0\r\nof a fork\nof a program\nend"
    assert sorted(texts(tmp_path / "log")) == sorted(["out 1", "err", "\ufffd\0", "of a fork", "end"])


@pytest.mark.programs
def test_a_traceback_is_recorded_and_kill_loses_no_line(tmp_path: Path) -> None:
    ended = run("print('before'); 1 / 0", log=tmp_path / "log", capture_output=True)
    assert texts(tmp_path / "log")[-1] == "ZeroDivisionError: division by zero"
    assert ended.returncode == 1
    run("print('last', flush=True); import os; os.kill(os.getpid(), 9)", log=tmp_path / "killed", capture_output=True)
    assert texts(tmp_path / "killed") == ["last"]


@pytest.mark.programs
def test_a_reader_that_is_gone_is_a_broken_pipe_as_before(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = run("print(1, flush=True)", log=tmp_path / "log", stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (ended.returncode, b"BrokenPipeError" in ended.stderr) == (1, True)
