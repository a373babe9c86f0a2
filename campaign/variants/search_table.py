"""The reader of the table ``[search]`` of a campaign file."""

from __future__ import annotations

from pathlib import Path

from analysis.choice.objectives import objective
from analysis.measurements.observations import FitError
from analysis.search.strategies import STRATEGIES
from campaign.plan.campaign_file import Search, read_campaign
from dvfs.errors import known_names


def read_search(path: Path) -> Search:
    """Read and check the ``[search]`` of a campaign file.

    Raises:
        FileError: it is wrong; the error has the place and a remedy.
    """
    campaign, source = read_campaign(path)
    search = campaign.search or Search()
    if search.strategy not in STRATEGIES:
        raise source.error(
            ("search", "strategy"),
            f"unknown strategy {search.strategy!r}",
            known_names(search.strategy, STRATEGIES),
        )
    try:
        objective(search.objective)
    except FitError as error:
        problem = str(error).removeprefix("--objective: ")
        raise source.error(("search", "objective"), problem, "use one of these") from None
    if search.budget is not None and search.budget < campaign.most_repeats:
        raise source.error(
            ("search", "budget"),
            f"found {search.budget}, and each point is measured {campaign.most_repeats} times",
            f"give at least {campaign.most_repeats}, or set repeats = 1",
        )
    return search
