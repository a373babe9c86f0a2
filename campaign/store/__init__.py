"""The store: where every measurement is kept, durably, once.

A worker appends to a journal of its own (:mod:`campaign.store.journal`); the driver moves
journals into Zarr (:mod:`campaign.store.compaction`); a reader sees an xarray Dataset
(:mod:`campaign.store.dataset`). A point is done when its measurement is in a journal.
"""
