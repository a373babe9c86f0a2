"""What a store answers: ask :class:`Results`, one method for each question.

>>> from campaign.results import open_store
>>> store = open_store("campaign-demo/store")
>>> store.fit("jetson-tk1")
>>> store.predict("jetson-tk1").to_pandas()
"""

from campaign.results.results import Results, open_store

__all__ = ["Results", "open_store"]
