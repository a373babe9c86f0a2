"""``python -m tests.shared_imports.server SOCKET OWNER``: forks a process for each command.

``SOCKET`` is the number of a listening socket, ``OWNER`` the process with which this one ends.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pkgutil
import selectors
import signal
import socket
import sys
import types
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from campaign.verbs.command_line import main

PACKAGES = ("campaign", "analysis", "sites", "kernels", "dvfs")
LATER = (
    "distributed.dashboard.scheduler",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_pdf",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "rich.console",
    "scipy.interpolate",
    "scipy.optimize",
    "scipy.stats",
    "statsmodels.api",
)
"""What functions import of other projects."""


def import_all() -> None:
    """Import everything that a verb may import; no thread is started and nothing is computed."""
    for package in map(import_module, PACKAGES):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)
    for name in LATER:
        import_module(name)


@dataclass
class Command:
    """A request, and the process that runs it."""

    connection: socket.socket
    text: bytes = b""
    length: int = -1
    streams: list[int] = field(default_factory=list)
    process: int = 0
    ended: int = -1


class Server:
    """All commands that run, by the file that says that something happened to them."""

    def __init__(self, listener: socket.socket, owner: int) -> None:
        self.selector = selectors.DefaultSelector()
        self.listener = listener
        self.owner = os.pidfd_open(owner)
        self.selector.register(listener, selectors.EVENT_READ)
        self.selector.register(self.owner, selectors.EVENT_READ)

    def serve(self) -> None:
        """Run commands until the owner ends; then the commands that still run are killed."""
        while True:
            for key, _ in self.selector.select():
                command = key.data
                if key.fileobj not in self.selector.get_map():
                    continue  # its command has ended meanwhile
                if key.fileobj is self.listener:
                    connection, _ = self.listener.accept()
                    self.selector.register(connection, selectors.EVENT_READ, Command(connection))
                elif key.fileobj == self.owner:
                    for other in [entry.data for entry in self.selector.get_map().values()]:
                        if other is not None and other.process:
                            os.kill(other.process, signal.SIGKILL)
                    return
                elif key.fileobj is command.connection:
                    self.read(command)
                elif command.process:
                    self.answer(command)

    def read(self, command: Command) -> None:
        """Take more of a request, and start it when it is whole; kill it where its client died."""
        if command.length < 0:
            head, command.streams, _, _ = socket.recv_fds(command.connection, 8, 3)
            command.length = int.from_bytes(head, "little")
            return
        part = command.connection.recv(1 << 20)
        command.text += part
        if not part:
            if command.process:
                os.kill(command.process, signal.SIGKILL)
                self.answer(command)
            else:
                self.forget(command)
        elif len(command.text) == command.length:
            self.start(command)

    def start(self, command: Command) -> None:
        request = json.loads(command.text)
        command.process = os.fork()
        if command.process == 0:
            self.leave(command)
            become(request, command.streams)
            # It ends as any interpreter does: threads, exit functions, objects' finalizers.
            sys.exit(main())
        for stream in command.streams:
            os.close(stream)
        command.ended = os.pidfd_open(command.process)
        self.selector.register(command.ended, selectors.EVENT_READ, command)

    def leave(self, command: Command) -> None:
        """In a command's process: close the server's descriptors, and other commands'."""
        others = {id(entry.data): entry.data for entry in self.selector.get_map().values()}
        for other in others.values():
            if other is not None:
                other.connection.close()
                for stream in other.streams if other is not command and not other.process else ():
                    os.close(stream)
        self.listener.close()
        self.selector.close()
        os.close(self.owner)

    def answer(self, command: Command) -> None:
        code = os.waitstatus_to_exitcode(os.waitpid(command.process, 0)[1])
        with contextlib.suppress(OSError):
            command.connection.sendall(str(code).encode())
        self.selector.unregister(command.ended)
        os.close(command.ended)
        command.process = 0
        self.forget(command)

    def forget(self, command: Command) -> None:
        self.selector.unregister(command.connection)
        command.connection.close()


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Be the process that the command's shell would have started."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = open(  # noqa: SIM115
            number,
            "w" if number else "r",
            encoding="utf-8",
            errors="backslashreplace" if name == "stderr" else "surrogateescape",
            closefd=False,
        )
        if number:
            lines = name == "stderr" or stream.isatty()
            stream.reconfigure(line_buffering=lines, write_through=unbuffered)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv = ["campaign", *request["words"]]
    sys.modules["__main__"] = types.ModuleType("__main__")


def serve() -> None:
    """Import everything, then run commands."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    import_all()
    gc.collect()
    gc.freeze()
    Server(listener, int(sys.argv[2])).serve()


if __name__ == "__main__":
    serve()
