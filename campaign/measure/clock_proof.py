"""Whether the clocks that were asked for are shown, and by what.

What the hardware reports inside the window is compared with what was asked for, and so is the core
clock that a timed loop gives right before and right after it (:mod:`kernels.host.timed_clock`).
Each contradiction is a failure. A clock is shown where the hardware reports it in every window, or
where every timing on every CPU agrees with it. Nothing has to be shown where nothing was asked for,
nor for a memory clock if the site has only one.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from campaign.measure.window import Window
from dvfs.dataset import READ_BACK, TIMED
from dvfs.setting import Setting
from sites.clocks.shared.limited import is_limit
from sites.site_file import Site

TIMED_PCT = 0.5
"""Timing is not compared more closely: a processor's reference clock may be 0.2 % off."""


class UnachievedClockError(Exception):
    """The hardware ran at another clock than the one requested."""


@dataclass(frozen=True)
class ClockProof:
    """``by``: what shows the clocks (``read back`` or ``timed``), empty where nothing had to be
    shown or nothing shows them. ``missing``: what is not shown and why; empty where nothing is."""

    by: str = ""
    missing: str = ""


def proof_of_all(proofs: Sequence[tuple[str, ClockProof]]) -> ClockProof:
    """The proof of a point from those of its ranks, each with the name of its node: what is not
    shown on one node is not shown."""
    missing = dict.fromkeys((node, proof.missing) for node, proof in proofs if proof.missing)
    if missing:
        several = len({node for node, _ in proofs}) > 1
        return ClockProof(
            missing="; ".join(f"{node}: {text}" if several else text for node, text in missing)
        )
    by = {proof.by for _, proof in proofs}
    return ClockProof(TIMED if TIMED in by else "".join(sorted(by)[-1:]))


def prove(site: Site, asked: Setting, windows: Sequence[Window]) -> ClockProof:
    """What shows that all windows ran at the clocks that were asked for.

    Raises:
        UnachievedClockError: they did not.
    """
    by, missing = [], []
    second = "memory clock" if asked.uncore_mhz is None else "uncore clock"
    for i, name in enumerate(("core clock", second)):
        mhz = asked.clocks[i]
        if mhz is None:
            continue
        limited = asked.power_limit_w is not None
        read = [_read_back(site, window, i, mhz, name, limited) for window in windows]
        timed = [_timed(site, window, mhz, limited) for window in windows] if i == 0 else []
        if i == 1 and len({setting.clocks[1] for setting in site.settings}) == 1:
            continue
        if all(read):
            by.append(READ_BACK)
        elif timed and all(timed):
            by.append(TIMED)
        else:
            why = "this node does not report it" + ("" if i else _as_timed(windows))
            missing.append(f"{name} {mhz:g} MHz: {why}")
    for name, read_back in _others_read_back(asked, windows).items():
        if read_back:
            by.append(READ_BACK)
        else:
            missing.append(f"{name}: this node does not report it")
    if missing:
        return ClockProof(missing="; ".join(missing))
    return ClockProof(by=TIMED if TIMED in by else "".join(by[:1]))


def _others_read_back(asked: Setting, windows: Sequence[Window]) -> dict[str, bool]:
    """Whether every window reported the power limit and the profile, as far as they were asked for,
    by the name of each with its value.

    Raises:
        UnachievedClockError: another one was reported.
    """
    limit_w, profile = asked.power_limit_w, asked.profile
    read = {}
    if limit_w is not None:
        limits_w = [window.achieved.power_limit_w for window in windows]
        for found_w in limits_w:
            if found_w is not None and not is_limit(found_w, limit_w):
                raise UnachievedClockError(
                    f"power limit: asked for {limit_w:g} W, and it was {found_w:g} W"
                )
        read[f"power limit {limit_w:g} W"] = None not in limits_w
    if profile is not None:
        profiles = [window.achieved.profile for window in windows]
        for found in profiles:
            if found not in (None, profile):
                raise UnachievedClockError(f"profile: asked for {profile}, and it was {found}")
        read[f"profile {profile}"] = None not in profiles
    return read


def _read_back(
    site: Site, window: Window, clock: int, mhz: float, name: str, limited: bool
) -> bool:
    """Whether the hardware reported one of the setting's clocks in the window. A core clock that is
    ``limited`` may be lower than asked for, and another one on each device."""
    achieved = window.achieved.clocks[clock]
    if achieved is None:
        return False
    allowed_pct = site.clocks.tolerance_pct
    lower = limited and clock == 0 and achieved < mhz
    if abs(achieved - mhz) > allowed_pct / 100.0 * mhz and not lower:
        raise UnachievedClockError(f"{name}: asked for {mhz:g} MHz, ran at {achieved:g} MHz")
    apart_pct = window.conditions.get("clocks_apart_pct", 0.0)
    if apart_pct > 2.0 * allowed_pct and not limited:
        raise UnachievedClockError(
            f"{name}: asked for {mhz:g} MHz, and the clocks of the devices are {apart_pct:.3g} % "
            f"apart"
        )
    return True


def _timed(site: Site, window: Window, mhz: float, limited: bool) -> bool:
    """Whether the timings before and after the window agree with the clock on every CPU; one that
    is ``limited`` may be lower, and is then not shown."""
    if not all(window.timed_mhz):
        return False
    allowed = max(site.clocks.tolerance_pct, TIMED_PCT) / 100.0
    typical = [statistics.median(timed) / mhz - 1.0 for timed in window.timed_mhz]
    if min(typical) > allowed or (max(typical) < -allowed and not limited):
        before, after = (statistics.median(timed) for timed in window.timed_mhz)
        raise UnachievedClockError(
            f"core clock: asked for {mhz:g} MHz, and a timed loop ran at {before:.0f} MHz before "
            f"and {after:.0f} MHz after the window"
        )
    return all(abs(timed / mhz - 1.0) <= allowed for cpus in window.timed_mhz for timed in cpus)


def _as_timed(windows: Sequence[Window]) -> str:
    """What a timed loop said, for a message."""
    timed = timed_mhz(windows)
    if not timed:
        return ""
    return f", and a timed loop ran at {min(timed):.0f} to {max(timed):.0f} MHz"


def timed_mhz(windows: Sequence[Window]) -> list[float]:
    """Every timing before and after the windows, in MHz."""
    return [mhz for window in windows for cpus in window.timed_mhz for mhz in cpus]
