"""Streams of bytes from a serial device or a network connection, read without waiting."""

from __future__ import annotations

import contextlib
import socket
from typing import Protocol


class ByteStream(Protocol):
    """An open stream of bytes."""

    name: str

    def take(self) -> bytes:
        """The bytes that arrived, without waiting; raises OSError if the other end is gone."""

    def send(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class SerialStream:
    """A serial device, opened by pyserial.

    Raises:
        ImportError: pyserial is not installed.
        OSError: the device cannot be opened.
    """

    def __init__(self, path: str, baud: int) -> None:
        import serial  # noqa: PLC0415

        self.name = path
        self._serial = serial.Serial(path, baud, timeout=0, exclusive=True)

    def take(self) -> bytes:
        # A disconnected adapter is readable and returns nothing; pyserial then raises an error.
        return bytes(self._serial.read(max(1, self._serial.in_waiting)))

    def send(self, data: bytes) -> None:
        self._serial.write(data)

    def close(self) -> None:
        self._serial.close()


class SocketStream:
    """A TCP connection; raises OSError if it cannot be made within 10 s."""

    def __init__(self, host: str, port: int) -> None:
        self.name = f"tcp://{host}:{port}"
        self._socket = socket.create_connection((host, port), timeout=10)
        self._socket.setblocking(False)

    def take(self) -> bytes:
        with contextlib.suppress(BlockingIOError):
            data = self._socket.recv(2**16)
            if not data:
                raise ConnectionResetError("the other end closed the connection")
            return data
        return b""

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def close(self) -> None:
        self._socket.close()
