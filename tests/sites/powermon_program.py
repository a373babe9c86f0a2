"""Sends lines like a PowerMon 2 logger, over a pseudo-terminal or a socket.

``python powermon_program.py FOLDER LINK``: FOLDER/rails/N holds "VOLTS AMPERES" of sensor N,
read again for every scan; the pseudo-terminal appears as the symbolic link LINK. FOLDER/clock
may hold "OFFSET_S RATE" of the logger's clock against CLOCK_MONOTONIC, and FOLDER/fault one of
``drop`` (a byte of every fifth line is lost), ``garble``, ``garbage`` (nothing else), ``silent``,
``hang up``.
"""

from __future__ import annotations

import os
import sys
import time
import tty
from pathlib import Path

SCAN_S = 0.005


def line_of(stamp_s: float, sensor: int, volts: float, amperes: float) -> bytes:
    """A line with its checksum."""
    text = f"{stamp_s:.6f} {sensor} {volts:.6f} {amperes:.6f}".encode()
    total = 0
    for byte in text:
        total ^= byte
    return text + b"*%02X\n" % total


def read_words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except FileNotFoundError:
        return []


def main() -> None:
    folder, link = Path(sys.argv[1]), Path(sys.argv[2])
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    os.set_blocking(ours, False)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.ttyname(theirs))
    print("ready", flush=True)
    count = 0
    while True:
        time.sleep(SCAN_S)
        fault = " ".join(read_words(folder / "fault"))
        if fault == "hang up":
            link.unlink()
            return
        if fault == "silent":
            continue
        clock = read_words(folder / "clock") or ["0", "1"]
        stamp_s = float(clock[0]) + float(clock[1]) * time.monotonic()
        rails = {int(path.name): path for path in (folder / "rails").glob("[0-7]")}
        for sensor, path in sorted(rails.items()):
            volts, amperes = (float(word) for word in read_words(path))
            line = line_of(stamp_s, sensor, volts, amperes)
            count += 1
            if fault == "garbage":
                line = b"\xff\x00?%d\n" % count
            elif fault == "drop" and count % 5 == 0:
                at = count % (len(line) - 1)
                line = line[:at] + line[at + 1 :]
            elif fault == "garble" and count % 5 == 0:
                line = line[:7] + b"\x80#" + line[9:]
            try:
                os.write(ours, line)
            except BlockingIOError:
                continue  # Nobody reads: what does not fit is lost, as on a real line.


if __name__ == "__main__":
    main()
