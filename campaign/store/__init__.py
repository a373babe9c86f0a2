"""The store: keeps every measurement durably, and each point once.

A worker appends records to a journal of its own (:mod:`campaign.store.journal`). The driver moves
the journals' records into Zarr (:mod:`campaign.store.compaction`). A reader gets an xarray Dataset
(:mod:`campaign.store.dataset`). A point is done when its measurement is in a journal.
"""
