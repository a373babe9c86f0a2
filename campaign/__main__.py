"""Where the command ``campaign`` and ``python -m campaign`` begin.

It imports nothing before it can answer a SIGINT in one line.
"""

import gc
import sys

GARBAGE_AFTER = 20_000
"""New objects after which Python looks for garbage. After its 700 it goes through all modules again
and again as they are imported: a quarter of the time that a command takes to start."""


def start() -> int:
    """Run the command line; its exit code. A SIGINT after it has ended changes nothing."""
    gc.set_threshold(GARBAGE_AFTER)
    try:
        from campaign.launch.interrupts import (  # noqa: PLC0415
            defer_while_importing,
            ignore_further,
        )

        defer_while_importing()
        from campaign.verbs.command_line import main  # noqa: PLC0415

        code = main()
        ignore_further()
    except (KeyboardInterrupt, Exception) as error:
        # Python makes a RuntimeError of what is raised while a class gets its attributes (3.11),
        # and a SystemError of what is raised in compiled code.
        if KeyboardInterrupt not in (type(error), type(error.__cause__)):
            raise
        print("campaign: interrupted; run it again", file=sys.stderr)
        return 130
    return code


if __name__ == "__main__":
    sys.exit(start())
