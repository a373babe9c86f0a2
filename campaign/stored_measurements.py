"""What a store has of its measurements: values, traces, states, failures, what the checks find.

The first part of :class:`campaign.results.Results`, which adds what is fitted to them. Everything
that is heavy is imported where it is used.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.errors import BadArgument
from campaign.result_tables import SiteFinding, Status
from campaign.store.layout import Store
from campaign.store.site_record import SiteRecord, read_site_record

if TYPE_CHECKING:
    import xarray as xr

    from analysis.measurements.observations import Observations
    from campaign.failures import Failures
    from campaign.shown_measurement import ShownMeasurement


@dataclass(frozen=True)
class StoredMeasurements:
    """A store's measurements as their reader sees them."""

    store: Store

    @property
    def path(self) -> Path:
        """The store's folder."""
        return self.store.root

    @cached_property
    def dataset(self) -> xr.Dataset:
        """All measurements, and their traces' samples, which are read when they are used.

        See :func:`campaign.store.dataset.open_dataset` for its dimensions.
        """
        from campaign.store.dataset import open_dataset  # noqa: PLC0415

        return open_dataset(self.store)

    @cached_property
    def scalars(self) -> xr.Dataset:
        """:attr:`dataset` without traces, in memory."""
        from campaign.store.dataset import read_scalars  # noqa: PLC0415

        return read_scalars(self.store)

    def trace(self, point_id: str, channel: str | None = None) -> xr.DataArray:
        """One measurement's trace along ``time`` (s), in its unit (``units``).

        ``channel``: may be left out where the measurement has one meter's channel.

        Raises:
            BadArgument: there is no such measurement, or not one such trace.
        """
        from campaign.store.trace import trace_of  # noqa: PLC0415

        return trace_of(self.dataset, point_id, channel)

    def measurement(self, point: str) -> ShownMeasurement:
        """Everything that the store has of one measurement. ``point``: the point's id, or its
        begin.

        Raises:
            BadArgument: there is no such measurement, or several.
        """
        from campaign.shown_measurement import shown_measurement  # noqa: PLC0415

        return shown_measurement(self.store, self.dataset, point)

    @property
    def sites(self) -> list[str]:
        """The sites that the store has measurements of, sorted."""
        from analysis.measurements.observations import site_names  # noqa: PLC0415

        return site_names(self.scalars)

    def only_site(self, site: str | None = None) -> str:
        """``site``, or where that is None the only one of the store.

        Raises:
            BadArgument: none is named, and the store has several or none.
        """
        if site is not None:
            return site
        if len(self.sites) == 1:
            return self.sites[0]
        if not self.sites:
            raise BadArgument(
                f"{self.path}: has no measurements; run a campaign, or import a table"
            )
        named = " or ".join(f"--site {site}" for site in self.sites[:6])
        raise BadArgument(f"{self.path}: has {len(self.sites)} sites; name one: {named}")

    def status(self, verify: bool = False) -> Status:
        """What is done, failed and left. ``verify``: read every file, all traces too, and name
        damaged ones and those that do not belong to a store."""
        from campaign.store.states import store_status  # noqa: PLC0415

        now = store_status(self.store)
        damage = list(now.damage)
        if verify:
            from campaign.store.verify import damaged_files, damaged_traces  # noqa: PLC0415

            found = [*damaged_files(self.store), *damaged_traces(self.store)]
            damage += [text for text in found if text not in damage]
        return Status(
            tuple(now.partitions),
            now.failures,
            tuple(now.flags.values()),
            tuple(damage),
            tuple(now.mixtures),
        )

    def iteration_times(self) -> dict[tuple[str, str], float]:
        """(kernel, parameters as JSON) -> the median time of one iteration over its measurements,
        in s."""
        from analysis.dataset import is_complete  # noqa: PLC0415

        done = is_complete(self.scalars["status"].values)
        times: dict[tuple[str, str], list[float]] = {}
        names = ("kernel", "params", "time_s")
        columns = [self.scalars[name].values[done].tolist() for name in names]
        for kernel, params, time_s in zip(*columns, strict=True):
            if math.isfinite(time_s):
                times.setdefault((kernel, params), []).append(time_s)
        return {own: statistics.median(some) for own, some in times.items()}

    def point_times(self) -> dict[tuple[str, str], dict[tuple[str, str], float]]:
        """(site, partition) -> (kernel, parameters as JSON) -> the median time from the start of a
        point to that of the next one on its node, in s."""
        names = ("site", "partition", "node", "start_unix_s", "kernel", "params")
        columns = [self.scalars[name].values.tolist() for name in names]
        rows = sorted(row for row in zip(*columns, strict=True) if row[2] and row[3] > 0)
        gaps: dict[tuple[str, str], dict[tuple[str, str], list[float]]] = {}
        for (*place, start_s, kernel, params), (*next_place, next_s, _, _) in pairwise(rows):
            if place == next_place:
                of_partition = gaps.setdefault((place[0], place[1]), {})
                of_partition.setdefault((kernel, params), []).append(next_s - start_s)
        return {
            names: {pair: statistics.median(some) for pair, some in own.items()}
            for names, own in gaps.items()
        }

    def failures(self, kernel: str | None = None, node: str | None = None) -> Failures:
        """The failed attempts by kernel, reason and node; of one kernel or node where it is named.

        Raises:
            BadArgument: no attempt of this kernel, or on this node, has failed.
        """
        from campaign.failures import grouped_failures  # noqa: PLC0415

        return grouped_failures(self.store, kernel, node)

    def site_record(self, site: str) -> SiteRecord:
        """What the store knows of a site beside its measurements."""
        return read_site_record(self.store, site)

    def observations(self, site: str) -> Observations:
        """A site's measurements as the model takes them.

        Raises:
            CantFit: the site is not in the store, or none of its measurements has an energy.
        """
        from analysis.measurements.observations import observations  # noqa: PLC0415

        return observations(self.scalars, site, self.site_record(site).classes)

    def findings(self, site: str) -> tuple[SiteFinding, ...]:
        """What the checks of a site's measurements find."""
        from campaign.findings import site_findings  # noqa: PLC0415

        return site_findings(self.scalars, site)
