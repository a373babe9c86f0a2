"""``python -m campaign`` is the command ``campaign``."""

import sys

from campaign.command_line import main

sys.exit(main())
