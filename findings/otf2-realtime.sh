#!/usr/bin/env bash
# FINDING: a trace that otf2 3.2 writes says that it was recorded when it was written. The clock properties of an OTF2
# trace hold a wall-clock time for its first timestamp; with it, a power meter's log is laid over the regions. A Writer
# takes the time at which the first event is handed to it, and writes that, whatever definitions.clock_properties says.
# One would think that a realtime_timestamp that is set, or that a Reader has read, is kept. A log that is converted to
# OTF2 afterwards, or a trace that is filtered as documented, with definitions=reader.definitions, is moved to the time
# of the conversion: its joules are integrated over other minutes of the log. Timestamps and length stay right, and
# nothing is said.
#
# Seen with otf2 3.2, for 3 s from 2026-01-01 00:00:00 UTC, in another year or later:
#   written: first timestamp 2026-01-01 00:00:00, realtime: now
#   filtered 2 s later: first timestamp 2026-01-01 00:00:00, realtime: 2 s after that
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet otf2==3.2

cat > "$folder/program.py" <<'PYTHON'
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import otf2
from otf2.definitions import ClockProperties
from otf2.registry import DefinitionRegistry

FOLDER = Path(sys.argv[1])
NANOSECONDS = 10**9
START = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * NANOSECONDS
LENGTH = 2 * NANOSECONDS


def read_clock(name: str) -> tuple[float, float, int]:
    with otf2.reader.open(str(FOLDER / name / "traces.otf2")) as trace:
        clock = trace.definitions.clock_properties
        first = clock.global_offset / clock.timer_resolution
        realtime = clock.realtime_timestamp / NANOSECONDS
        print(f"{name}: first timestamp {datetime.fromtimestamp(first, UTC):%F %T}, ", end="")
        print(f"realtime {datetime.fromtimestamp(realtime, UTC):%F %T}")
        return first, realtime, clock.trace_length


def main() -> int:
    definitions = DefinitionRegistry()
    definitions.strings.create("")
    definitions.clock_properties = ClockProperties(
        definitions,
        timer_resolution=NANOSECONDS,
        global_offset=START,
        trace_length=LENGTH,
        realtime_timestamp=START,
    )
    written_at = time.time()
    with otf2.writer.open(str(FOLDER / "written"), definitions=definitions) as trace:
        node = trace.definitions.system_tree_node("node")
        group = trace.definitions.location_group("meter", system_tree_parent=node)
        power = trace.definitions.metric("power", unit="W")
        events = trace.event_writer("meter", group=group)
        for second in range(3):
            events.metric(START + second * NANOSECONDS, power, 100.0 + second)
    first, realtime, length = read_clock("written")
    right = first == START / NANOSECONDS and length == LENGTH
    still = abs(realtime - written_at) < 60

    time.sleep(2)
    with otf2.reader.open(str(FOLDER / "written" / "traces.otf2")) as trace:
        name = str(FOLDER / "filtered")
        with otf2.writer.open(name, definitions=trace.definitions) as filtered:
            for location, event in trace.events:
                filtered.event_writer_from_location(location)(event)
    first_filtered, realtime_filtered, length = read_clock("filtered")
    right = right and first_filtered == first and length == LENGTH
    still = still and realtime_filtered - realtime > 1.9
    return 0 if right and still else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder"
