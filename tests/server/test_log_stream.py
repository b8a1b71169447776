"""Lines of the log for a stream that may stop taking them."""

import errno
import io
import logging
import os
import select
import sys
import threading
from pathlib import Path

import pytest

from dragoman_server.log import configure_logging
from dragoman_server.platform import log_stream
from dragoman_server.platform.log_stream import LogStream


def warning(text: str) -> str:
    return f"{text}\n"


def test_a_stream_that_is_no_file_gets_all_lines() -> None:
    taken = io.StringIO()
    stream = LogStream(taken, warning)
    stream.write("a\n")
    stream.flush()
    assert taken.getvalue() == "a\n"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no poll()")
def test_lines_that_nobody_reads_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_stream, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(log_stream, "MAX_WAITING_BYTES", 3 * select.PIPE_BUF)
    reader, writer = os.pipe()
    with open(reader, "rb", buffering=0) as read, open(writer, "w", encoding="utf-8") as pipe:
        stream = LogStream(pipe, warning)
        # Longer than what a pipe takes at once.
        lines = [f"{number} {'é' * select.PIPE_BUF}\n" for number in range(100)]
        for line in lines:
            stream.write(line)
        taken = read.read(2**20)
        stream.write("last\n")
        taken += read.read(2**20)
    written = lines[: taken.count(b"\n") - 2]
    assert 0 < len(written) < len(lines)
    assert taken.decode() == "".join(
        [*written, f"lines dropped because nothing took them: {len(lines) - len(written)}\n", "last\n"]
    )


@pytest.mark.skipif(sys.platform == "win32", reason="there is no poll()")
def test_lines_for_a_full_disk_are_whole_when_it_has_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_stream, "MAX_WAITING_BYTES", 10)
    write, room = os.write, 6

    def limited(file: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(file, data[:room])
        room -= written
        return written

    monkeypatch.setattr(os, "write", limited)
    with open(tmp_path / "log", "w", encoding="utf-8") as file:
        stream = LogStream(file, warning)
        for line in ("1st\n", "second\n", "3rd\n", "4th\n"):
            stream.write(line)
        room = 1000
        stream.write("last\n")
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines == ["1st", "second", "3rd", "lines dropped because nothing took them: 1", "last"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux opens a terminal again")
def test_a_terminal_that_nobody_reads_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_stream, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(log_stream, "MAX_WAITING_BYTES", select.PIPE_BUF)
    reader, writer = os.openpty()
    late = threading.Timer(10.0, os.close, (reader,))  # a write that waits for its reader fails then
    late.start()
    with open(writer, "w", encoding="utf-8") as terminal:
        stream = LogStream(terminal, warning)
        for number in range(20_000):
            stream.write(f"{number:0136}\n")
        late.cancel()
        assert os.read(reader, 138) == b"0" * 136 + b"\r\n"
    os.close(reader)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no poll()")
def test_lines_of_two_workers_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_stream, "_PATIENCE_S", 0.0)
    reader, writer = os.pipe()
    with open(reader, "rb", buffering=0) as read, open(writer, "w", encoding="utf-8") as pipe:
        streams = [LogStream(pipe, warning) for _ in range(2)]
        taken = bytearray()
        for _ in range(100):
            for name, stream in zip("ab", streams, strict=True):
                stream.write(name * 999 + "\n")
        while len(taken) < 200_000:
            taken += read.read(select.PIPE_BUF)
            streams.reverse()
            for stream in streams:
                stream.flush()
    assert set(bytes(taken).splitlines()) == {b"a" * 999, b"b" * 999}


@pytest.mark.skipif(sys.platform == "win32", reason="there is no poll()")
def test_a_long_line_in_a_file_is_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    write = os.write

    def counted(file: int, data: bytes) -> int:
        sizes.append(len(data))
        return write(file, data)

    with open(tmp_path / "log", "w", encoding="utf-8") as file:
        stream = LogStream(file, warning)
        monkeypatch.setattr(os, "write", counted)
        stream.write("a" * 3 * select.PIPE_BUF + "\n")
    assert sizes == [3 * select.PIPE_BUF + 1]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no poll()")
def test_lines_that_wait_stay_when_logging_is_configured_again(
    monkeypatch: pytest.MonkeyPatch, logger: logging.Logger
) -> None:
    monkeypatch.setattr(log_stream, "_PATIENCE_S", 0.0)
    reader, writer = os.pipe()
    text = "a" * 999
    with open(reader, "rb", buffering=0) as read, open(writer, "w", encoding="utf-8") as pipe:
        for _ in range(2):
            configure_logging("info", "text", pipe)
            for _ in range(100):
                logger.getChild("requests").info(text)
        os.set_blocking(reader, False)
        taken = b""
        while part := read.read(select.PIPE_BUF):
            taken += part
            logger.handlers[0].flush()
    assert taken.count(text.encode()) == 200
