"""The store: it keeps all measurements durably, one for each point.

Each worker appends records to its journal (:mod:`campaign.store.journal`). The driver moves
the journals' records into Zarr (:mod:`campaign.store.compaction`). A reader gets an xarray Dataset
(:mod:`campaign.store.dataset`). A point is done as soon as its measurement is in a journal.
"""
