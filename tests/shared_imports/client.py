"""Runs a command of the server whose socket lies beside this program; ends as the command ends."""

import json
import os
import signal
import socket
import sys

# By a descriptor, since a socket's path has at most 107 bytes. Importing pathlib takes longer than
# all the rest of this program.
folder = os.open(os.path.dirname(__file__), os.O_RDONLY)  # noqa: PTH120
with socket.socket(socket.AF_UNIX) as server:
    server.connect(f"/proc/self/fd/{folder}/socket")
    here = os.getcwd()  # noqa: PTH109
    command = {"words": sys.argv[1:], "folder": here, "environment": dict(os.environ)}
    request = json.dumps(command).encode()
    socket.send_fds(server, [len(request).to_bytes(8, "little")], [0, 1, 2])
    server.sendall(request)
    answer = server.recv(8)
if not answer:
    sys.exit("the server of the tests' commands has ended")
code = int(answer)
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
