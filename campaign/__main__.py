"""Where the command ``campaign`` and ``python -m campaign`` begin.

It imports nothing before it can answer a SIGINT in one line.
"""

import sys


def start() -> int:
    """Run the command line; its exit code. A SIGINT after it has ended changes nothing."""
    try:
        from campaign.command_line import main  # noqa: PLC0415
        from campaign.interrupts import ignore_further  # noqa: PLC0415

        code = main()
        ignore_further()
    except (KeyboardInterrupt, RuntimeError) as error:
        # Python 3.11 makes a RuntimeError of what is raised while a class gets its attributes.
        if not isinstance(error, KeyboardInterrupt) and not isinstance(
            error.__cause__, KeyboardInterrupt
        ):
            raise
        print("campaign: interrupted; run it again", file=sys.stderr)
        return 130
    return code


if __name__ == "__main__":
    sys.exit(start())
