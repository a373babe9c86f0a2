"""A scheduler that starts workers as the local one does."""

from __future__ import annotations

from campaign.launch.local import LocalScheduler


class HereScheduler(LocalScheduler):
    """Workers on this machine."""

    title = "the scheduler of the example"
