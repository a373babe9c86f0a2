"""Proofs that a measurement ran at the requested clocks.

Two things are compared with the requested clock: the hardware's report inside the window, and the
core clock that a timed loop measures right before and right after it
(:mod:`kernels.host.timed_clock`). Each contradiction is a failure. A clock is proven if the
hardware reports it in every window, or if every timing on every CPU agrees with it. A clock that
was not requested needs no proof, nor does a memory clock if the site has only one.
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
"""The least tolerance of a timing: a processor's reference clock may be 0.2 % off."""


class UnachievedClockError(Exception):
    """The hardware ran at another clock than the one requested."""


@dataclass(frozen=True)
class ClockProof:
    """``by``: the kind of proof (``read back`` or ``timed``), empty if none was needed or one is
    missing. ``missing``: the clocks without a proof, and why; empty if there are none."""

    by: str = ""
    missing: str = ""


def proof_of_all(proofs: Sequence[tuple[str, ClockProof]]) -> ClockProof:
    """The proof of a point from those of its ranks, each with the name of its node. A clock that is
    not proven on one node is not proven."""
    missing = dict.fromkeys((node, proof.missing) for node, proof in proofs if proof.missing)
    if missing:
        several = len({node for node, _ in proofs}) > 1
        return ClockProof(
            missing="; ".join(f"{node}: {text}" if several else text for node, text in missing)
        )
    return ClockProof(_weakest([proof.by for _, proof in proofs]))


def _weakest(kinds: Sequence[str]) -> str:
    """The kind of the least certain proof; empty without any."""
    return next((kind for kind in (TIMED, READ_BACK) if kind in kinds), "")


def prove(site: Site, requested: Setting, windows: Sequence[Window]) -> ClockProof:
    """The proof that all windows ran at the requested clocks.

    Raises:
        UnachievedClockError: a window ran at others.
    """
    kinds, missing = [], []
    second = "memory clock" if requested.uncore_mhz is None else "uncore clock"
    for i, name in enumerate(("core clock", second)):
        mhz = requested.clocks[i]
        if mhz is None:
            continue
        limited = requested.power_limit_w is not None
        reports = [_read_back(site, window, i, mhz, name, limited) for window in windows]
        timed = [_timed(site, window, mhz, limited) for window in windows] if i == 0 else []
        if i == 1 and len({setting.clocks[1] for setting in site.settings}) == 1:
            continue
        if all(reports):
            kinds.append(READ_BACK)
        elif timed and all(timed):
            kinds.append(TIMED)
        else:
            why = "this node does not report it" + ("" if i else _as_timed(windows))
            missing.append(f"{name} {mhz:g} MHz: {why}")
    for name, read_back in _limit_and_profile_read_back(requested, windows).items():
        if read_back:
            kinds.append(READ_BACK)
        else:
            missing.append(f"{name}: this node does not report it")
    if missing:
        return ClockProof(missing="; ".join(missing))
    return ClockProof(_weakest(kinds))


def _limit_and_profile_read_back(requested: Setting, windows: Sequence[Window]) -> dict[str, bool]:
    """Whether every window reported the requested power limit and the requested profile. The keys:
    the name and the value of each that was requested.

    Raises:
        UnachievedClockError: a window reported another one.
    """
    limit_w, profile = requested.power_limit_w, requested.profile
    is_read_back = {}
    if limit_w is not None:
        limits_w = [window.achieved.power_limit_w for window in windows]
        for reported_w in limits_w:
            if reported_w is not None and not is_limit(reported_w, limit_w):
                raise UnachievedClockError(
                    f"power limit: asked for {limit_w:g} W, and it was {reported_w:g} W"
                )
        is_read_back[f"power limit {limit_w:g} W"] = None not in limits_w
    if profile is not None:
        profiles = [window.achieved.profile for window in windows]
        for reported in profiles:
            if reported not in (None, profile):
                raise UnachievedClockError(f"profile: asked for {profile}, and it was {reported}")
        is_read_back[f"profile {profile}"] = None not in profiles
    return is_read_back


def _read_back(
    site: Site, window: Window, clock: int, mhz: float, name: str, limited: bool
) -> bool:
    """Whether the hardware reported a clock in the window. ``clock``: its index in the setting's
    clocks; ``mhz``: the requested one. A core clock that is ``limited`` may be lower than requested
    and differ between devices."""
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
    """Whether the timings before and after the window agree with the clock on every CPU. A clock
    that is ``limited`` may be lower, and then has no proof."""
    if not all(window.timed_mhz):
        return False
    allowed = max(site.clocks.tolerance_pct, TIMED_PCT) / 100.0
    deviations = [statistics.median(timed) / mhz - 1.0 for timed in window.timed_mhz]
    if min(deviations) > allowed or (max(deviations) < -allowed and not limited):
        before, after = (statistics.median(timed) for timed in window.timed_mhz)
        raise UnachievedClockError(
            f"core clock: asked for {mhz:g} MHz, and a timed loop ran at {before:.0f} MHz before "
            f"and {after:.0f} MHz after the window"
        )
    return all(abs(timed / mhz - 1.0) <= allowed for cpus in window.timed_mhz for timed in cpus)


def _as_timed(windows: Sequence[Window]) -> str:
    """The range of the timings as a clause of a message; empty without timings."""
    timed = timed_mhz(windows)
    if not timed:
        return ""
    return f", and a timed loop ran at {min(timed):.0f} to {max(timed):.0f} MHz"


def timed_mhz(windows: Sequence[Window]) -> list[float]:
    """All timings before and after the windows, in MHz."""
    return [mhz for window in windows for cpus in window.timed_mhz for mhz in cpus]
