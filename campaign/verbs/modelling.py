"""fit, coefficients, crossval and predict."""

from __future__ import annotations

import math
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign.verbs.errors import BadArgument
from campaign.verbs.show import plain, print_finding, print_json, print_table, say

if TYPE_CHECKING:
    import xarray as xr

    from analysis.choice.pick import Candidates, Pick
    from analysis.energy.fit import Fit
    from analysis.measurements.observations import Observations
    from analysis.quality import Finding
    from campaign.store.layout import Store

OUTLIERS_SHOWN = 5
VOLTAGE_TEXT = {
    "unit": "V = 1",
    "floor": "estimated (a floor, then a straight rise)",
    "free": "estimated (one for each clock)",
}


SETTING_NUMBERS = 4
"""Of a legal setting: core and memory MHz, core and memory volts."""


def site_data(store: Store, site: str) -> Observations:
    """A site's measurements, with its classes' domains as the store knows them."""
    from analysis.measurements.observations import observations  # noqa: PLC0415
    from campaign.store.dataset import read_scalars  # noqa: PLC0415

    return observations(read_scalars(store), site, site_facts(store, site).get("classes"))


def site_facts(store: Store, site: str) -> dict[str, Any]:
    """What the store knows of a site beside its measurements.

    Raises:
        DamagedStore: it is not what :func:`campaign.launch.drive.site_record` gives.
    """
    from campaign.store.layout import DamagedStore  # noqa: PLC0415
    from campaign.store.site_record import site_file_name  # noqa: PLC0415

    name = f"sites/{site_file_name(site)}"
    facts = store.read_json(name)
    if facts is None:
        return {}
    if not isinstance(facts, dict) or not _are_site_facts(facts):
        raise DamagedStore(
            f"{store.root / name}: is not what a run or an import writes; run or import again to "
            f"write it anew, or remove it"
        )
    return facts


def _are_site_facts(facts: dict[str, Any]) -> bool:
    classes, legal = facts.get("classes", {}), facts.get("legal", [])
    return (
        isinstance(classes, dict)
        and all(each in ("core", "mem") for each in classes.values())
        and isinstance(facts.get("device", ""), str)
        and isinstance(legal, list)
        and all(isinstance(row, list) and len(row) == SETTING_NUMBERS for row in legal)
        and all(isinstance(n, int | float | None) for row in legal for n in row)
    )


def keep_fit(store: Store, found: Fit) -> None:
    """Keep a site's fit in the store, in place of an earlier one."""
    from analysis.energy.fit_file import as_kept  # noqa: PLC0415
    from campaign.store.layout import writing  # noqa: PLC0415
    from campaign.store.site_record import site_file_name  # noqa: PLC0415

    with writing(store):
        store.write_json(f"fits/{site_file_name(found.site)}", as_kept(found))


def kept_fit(store: Store, site: str) -> Fit:
    """A site's fit; BadArgument when there is none."""
    from analysis.energy.fit_file import NoFit, fit_of  # noqa: PLC0415
    from campaign.store.site_record import site_file_name  # noqa: PLC0415

    kept = store.read_json(f"fits/{site_file_name(site)}")
    if kept is None:
        raise BadArgument(
            f"{store.root}: no fit of site {site!r}; run: campaign fit {store.root} --site {site}"
        )
    try:
        return fit_of(kept)
    except NoFit as error:
        raise BadArgument(
            f"{store.fits / site_file_name(site)}: is no fit ({error}); "
            f"run: campaign fit {store.root} --site {site}"
        ) from None


def _open(arguments: Namespace) -> Store:
    from campaign.store.layout import open_store  # noqa: PLC0415

    return open_store(Path(arguments.store))


def fit(arguments: Namespace) -> int:
    """Fit a site and keep the fit; measurements that no fit can be true to are refused."""
    from analysis.energy.fit import fit as fit_model  # noqa: PLC0415

    store = _open(arguments)
    data, findings, dataset = _fit_for_fitting(store, arguments.site)
    found = fit_model(data, arguments.model, arguments.voltage, robust=arguments.robust)
    keep_fit(store, found)
    if arguments.json:
        print_json(found.as_dict() | {"findings": [finding.as_dict() for finding in findings]})
        return 0
    for each in findings:
        print_finding(arguments.site, each, dataset)
    print_fit(found)
    return 0


def _fit_for_fitting(store: Store, site: str) -> tuple[Observations, list[Finding], xr.Dataset]:
    """A site's measurements, what was found in them, and the Dataset that the findings name.

    BadArgument where no fit can be true to them, as with a sweep over power caps.
    """
    from analysis.measurements.observations import observations  # noqa: PLC0415
    from analysis.quality import check  # noqa: PLC0415
    from campaign.store.dataset import read_scalars  # noqa: PLC0415

    dataset = read_scalars(store)
    findings = check(dataset, site)
    refused = next((each for each in findings if each.severity == "refused"), None)
    if refused is not None:
        raise BadArgument(f"{site}: {refused.text}")
    data = observations(dataset, site, site_facts(store, site).get("classes"))
    return data, findings, dataset


def print_fit(found: Fit) -> None:
    """A fit for people: its coefficients with their intervals, and what was left out."""
    simulated = " (simulated)" if found.simulated else ""
    voltage = VOLTAGE_TEXT.get(found.voltage, found.voltage)
    say(
        f"{found.site}{simulated}: model {found.model}, voltage {voltage}, {found.n} measurements "
        f"at {found.n_settings} settings, condition number {found.condition_number:.1f}"
    )
    say(f"why this model: {found.why}")
    shown = [i for i, term in enumerate(found.terms) if term.kind != "lumped"]
    lumped = len(found.terms) - len(shown)
    print_table(
        ["coefficient", "value", "low", "high", "unit"],
        [
            [
                found.terms[i].name,
                float(found.value[i]),
                float(found.low[i]),
                float(found.high[i]),
                found.terms[i].unit,
            ]
            for i in shown
        ],
    )
    if lumped:
        say(f"and {lumped} lumped coefficients of kernels without counts (--json lists them)")
    for name, curve in (("core", found.curves.core), ("memory", found.curves.mem)):
        if len(curve.mhz) > 1:
            points = ", ".join(
                f"{volt:.3f} at {mhz:g} MHz"
                for mhz, volt in zip(curve.mhz, curve.volt, strict=True)
            )
            say(f"{name} voltage, relative, estimated: {points}")
    for entry in found.dropped:
        say(f"left out: {entry['name']}: {entry['why']}")
    for group in found.confounded:
        say(f"can't be told apart: {', '.join(group['terms'])}; to do so, {group['remedy']}")
    for row in found.outliers[:OUTLIERS_SHOWN]:
        say(
            f"outlier: {row['label']} at {row['setting']}: {row['energy_j']:.4g} J measured, "
            f"{row['predicted_j']:.4g} J by the model ({row['deviations']:.0f} deviations)"
        )
    if len(found.outliers) > OUTLIERS_SHOWN:
        say(f"and {len(found.outliers) - OUTLIERS_SHOWN} more outliers (--json lists them)")


def coefficients(arguments: Namespace) -> int:
    """Show what is fitted: a site's or all sites' coefficients, or their costs at a setting."""
    from urllib.parse import unquote  # noqa: PLC0415

    store = _open(arguments)
    known = sorted(unquote(path.stem) for path in store.fits.glob("*.json"))
    names = [arguments.site] if arguments.site else known
    if not names:
        raise BadArgument(f"{store.root}: no fit yet; run: campaign fit {store.root} --site SITE")
    fits = [kept_fit(store, name) for name in names]
    if arguments.core_mhz is None and arguments.mem_mhz is None:
        if arguments.json:
            print_json([found.as_dict() for found in fits])
        else:
            for found in fits:
                print_fit(found)
        return 0
    shown = [_costs(store, found, arguments) for found in fits]
    if arguments.json:
        print_json(shown)
        return 0
    for each in shown:
        say(
            f"{each['site']}{' (simulated)' if each['simulated'] else ''} at "
            f"{each['core_mhz']:g}/{each['mem_mhz']:g} MHz, "
            f"{each['core_v']:g}/{each['mem_v']:g} V"
        )
        print_table(
            ["cost", "value", "low", "high", "unit"],
            [[c["name"], c["value"], c["low"], c["high"], c["unit"]] for c in each["costs"]],
        )
    return 0


def _costs(store: Store, found: Fit, arguments: Namespace) -> dict[str, Any]:
    from analysis.energy.fit import costs_at  # noqa: PLC0415

    volts = setting_volts(store, found.site, site_data(store, found.site))
    wanted = (
        math.nan if arguments.core_mhz is None else arguments.core_mhz,
        math.nan if arguments.mem_mhz is None else arguments.mem_mhz,
    )
    matches = [
        s for s in volts if all(math.isnan(w) or w == mhz for w, mhz in zip(wanted, s, strict=True))
    ]
    if len(matches) != 1:
        known = ", ".join(f"{c:g},{m:g}" for c, m in sorted(volts)[:8])
        what = "more than one setting" if matches else "no setting"
        raise BadArgument(
            f"{found.site}: {what} of known voltage is at --core-mhz {wanted[0]:g} "
            f"--mem-mhz {wanted[1]:g}; known: {known}{' ...' if len(volts) > 8 else ''}"
        )
    core_mhz, mem_mhz = matches[0]
    costs = costs_at(found, core_mhz, mem_mhz, *volts[matches[0]])
    rows = [(f"energy_{name}", "pJ", *value) for name, value in costs.operation_pj.items()]
    rows.append(("constant_power", "W", *costs.constant_w))
    return {
        "site": found.site,
        "simulated": found.simulated,
        "core_mhz": core_mhz,
        "mem_mhz": mem_mhz,
        "core_v": costs.core_v,
        "mem_v": costs.mem_v,
        "costs": [
            {"name": name, "value": value, "unit": unit, "low": low, "high": high}
            for name, unit, value, low, high in rows
        ],
    }


def setting_volts(
    store: Store, site: str, data: Observations
) -> dict[tuple[float, float], tuple[float, float]]:
    """Every setting whose voltages are known, measured or only legal: MHz pair -> V pair."""
    import numpy as np  # noqa: PLC0415

    # NaN is not equal to itself: a clock that is not there is None while settings are compared.
    named = {_none_for_nan(pair): pair for pair in data.settings}
    found: dict[tuple[float, float], tuple[float, float]] = {}
    for core_mhz, mem_mhz, core_v, mem_v in site_facts(store, site).get("legal", []):
        legal = tuple(math.nan if mhz is None else float(mhz) for mhz in (core_mhz, mem_mhz))
        pair = named.get((core_mhz, mem_mhz), (legal[0], legal[1]))
        if data.voltage == "unit":
            found[pair] = (1.0, 1.0)
        elif core_v is not None:
            found[pair] = (core_v, 1.0 if mem_v is None else mem_v)
    for s in np.unique(data.setting):
        mine = data.setting == s
        found[data.settings[s]] = (float(data.core_v[mine].mean()), float(data.mem_v[mine].mean()))
    return found


def _none_for_nan(pair: tuple[float, float]) -> tuple[float | None, float | None]:
    core, mem = (None if math.isnan(mhz) else mhz for mhz in pair)
    return core, mem


def crossval(arguments: Namespace) -> int:
    """Cross-validate a site's model."""
    from analysis.choice.crossval import cross_validate, leave_one_site_out  # noqa: PLC0415

    store = _open(arguments)
    over_sites = arguments.scheme == "leave-one-site-out"
    if len(arguments.site) > 1 and not over_sites:
        raise BadArgument("--site: more than one goes with --scheme leave-one-site-out")
    if over_sites and arguments.time != "measured":
        raise BadArgument("--time: leave-one-site-out is judged with measured times")
    train = [_pair(text) for text in arguments.train] if arguments.train else None
    if train and arguments.scheme != "holdout":
        raise BadArgument("--train goes with --scheme holdout")
    form = (arguments.model, arguments.voltage, arguments.robust)
    if over_sites:
        sites = [_fit_for_fitting(store, site)[0] for site in arguments.site]
        found = leave_one_site_out(sites, *form)
    else:
        model, voltage, robust = form
        data, _, _ = _fit_for_fitting(store, arguments.site[0])
        found = cross_validate(
            data, arguments.scheme, model, arguments.time, train, voltage, robust
        )
    if arguments.json:
        print_json(found.as_dict())
    else:
        print_crossval(found.as_dict())
    return 0


def _pair(text: str) -> tuple[float, float]:
    try:
        core, mem = (float(part) for part in text.split(","))
    except ValueError:
        raise BadArgument(f"--train: found {text!r}; must be CORE,MEM in MHz, as 852,924") from None
    return core, mem


def print_crossval(shown: dict[str, Any]) -> None:
    """A cross-validation for people: the error out of fold, and what each chooser loses."""
    simulated = " (simulated)" if shown["simulated"] else ""
    say(
        f"{shown['site']}{simulated}: {shown['scheme']}, {shown['n_folds']} folds, model "
        f"{shown['model']}, voltage {shown['voltage']}: {shown['n']} predictions, error "
        f"{shown['mape_pct']:.2f} % (std {shown['std_pct']:.2f}, {shown['min_pct']:.2f} to "
        f"{shown['max_pct']:.2f})"
    )
    decision = shown["decision"]
    rows = [
        [name.replace("_", " "), each["mean_lost_pct"], each["max_lost_pct"], each["exact"]]
        for name, each in decision.items()
        if isinstance(each, dict)
    ]
    if rows:
        say(
            f"energy lost by the choice of a setting, {decision['cases']} kernels, time "
            f"{decision['time']}:"
        )
        print_table(["chooser", "mean %", "max %", "exact"], rows)
        say(contest_text(shown["against_race_to_halt"]))


def contest_text(contest: dict[str, Any]) -> str:
    """Whether the picks are worth more than racing to halt, in words."""
    interval = f"{contest['mean_gain_pct']:.2f} % of energy more than the picks"
    if math.isfinite(contest["low_pct"]):
        interval += f" (95 %: {contest['low_pct']:.2f} to {contest['high_pct']:.2f})"
    verdict = {
        "model": "the picks are better",
        "race_to_halt": "race to halt is better here: run at the fastest setting",
        "open": "these measurements can't tell the two apart",
    }[contest["verdict"]]
    return f"race to halt loses {interval}: {verdict}"


def predict(arguments: Namespace) -> int:
    """The best pair of clocks for each kernel, with the Slurm options that ask for it."""
    from analysis.choice.pick import all_candidates  # noqa: PLC0415
    from analysis.measurements.observations import kernel_names  # noqa: PLC0415
    from sites.clocks.slurm import step_flags  # noqa: PLC0415
    from sites.setting import Setting  # noqa: PLC0415

    if arguments.max_slowdown is not None and not arguments.max_slowdown >= 0:
        raise BadArgument("--max-slowdown: must be 0 or more, as 0.05 for 5 %")
    if arguments.max_power_w is not None and not arguments.max_power_w > 0:
        raise BadArgument("--max-power-w: must be more than 0, as 150 for 150 W")
    store = _open(arguments)
    found = kept_fit(store, arguments.site)
    data = site_data(store, arguments.site)
    volts = setting_volts(store, arguments.site, data) if arguments.all_settings else None
    without: list[str] = []
    wanted = [
        label
        for label in kernel_names(data)
        if arguments.kernel in (None, label, data.instance(label).name)
    ]
    if arguments.profile:
        chosen = [_profile_pick(Path(arguments.profile), found, data, volts, arguments)]
    elif wanted:
        among = all_candidates(found, data, wanted, volts)
        chosen, without = _within_limits(list(among.values()), arguments)
    else:
        raise BadArgument(
            f"--kernel: {arguments.site} has no kernel {arguments.kernel!r}; it has "
            f"{', '.join(sorted({data.instance(label).name for label in kernel_names(data)}))}"
        )
    device = site_facts(store, arguments.site).get("device", "cpu")
    rows: list[dict[str, Any]] = []
    for each in chosen:
        core, mem = (None if math.isnan(v) else v for v in (each.core_mhz, each.mem_mhz))
        rows.append(
            vars(each)
            | {
                "mem_mhz": mem,
                "core_mhz": core,
                "simulated": found.simulated,
                "slurm": " ".join(step_flags(Setting(core, mem), device)),
            }
        )
    if arguments.policy:
        write_policy(Path(arguments.policy), arguments, found, rows)
    if arguments.json:
        print_json(rows)
        return 0
    if found.simulated:
        say("simulated: the measurements are a twin's")
    header = ["kernel", "core MHz", "memory MHz", "energy J", "time s", "saves %", "from", "to"]
    header += ["slower %", "P(best)", "lost %", "race to halt", "srun"]
    keys = ["label", "core_mhz", "mem_mhz", "energy_j", "time_s", "saving_pct", "saving_low_pct"]
    keys += ["saving_high_pct", "slowdown_pct", "best_probability", "expected_loss_pct"]
    keys += ["race_to_halt", "slurm"]
    print_table(header, [[row[key] for key in keys] for row in rows])
    for line in without:
        say(f"no pick: {line}")
    if arguments.policy:
        say(f"policy: {arguments.policy}")
    return 0


def _within_limits(among: list[Candidates], arguments: Namespace) -> tuple[list[Pick], list[str]]:
    """The picks, and a line for each kernel that has none within the limits; CantFit if all."""
    from analysis.choice.pick import pick  # noqa: PLC0415
    from analysis.measurements.observations import CantFit  # noqa: PLC0415

    chosen, without = [], []
    for each in among:
        try:
            chosen.append(
                pick(each, arguments.objective, arguments.max_slowdown, arguments.max_power_w)
            )
        except CantFit as error:
            without.append(str(error))
    if not chosen:
        raise CantFit(without[0])
    return chosen, without


def _profile_pick(
    path: Path,
    found: Fit,
    data: Observations,
    volts: dict[tuple[float, float], tuple[float, float]] | None,
    arguments: Namespace,
) -> Pick:
    """The pick of an application from its profile, without running it at any other setting."""
    from analysis.choice.pick import pick, profile_candidates  # noqa: PLC0415
    from analysis.measurements.observations import setting_text  # noqa: PLC0415
    from campaign.plan.profile_file import read_profile  # noqa: PLC0415

    profile, source = read_profile(path)
    settings = {_none_for_nan(pair): pair for pair in [*data.settings, *(volts or {})]}
    at = settings.get((profile.core_mhz, profile.mem_mhz))
    if at is None:
        known = ", ".join(setting_text(pair) for pair in data.settings[:6])
        raise source.error(
            ("core_mhz",),
            f"{profile.core_mhz}, mem_mhz {profile.mem_mhz}: no setting of {found.site}",
            f"known: {known} ...",
        )
    among = profile_candidates(
        found, data, profile.kernel, profile.counts, profile.time_s, at, volts
    )
    return pick(among, arguments.objective, arguments.max_slowdown, arguments.max_power_w)


def write_policy(path: Path, arguments: Namespace, found: Fit, rows: list[dict[str, Any]]) -> None:
    """The picks as JSON, a list for each site, for a job's prolog to look up.

    Other sites in the file stay as they are.
    """
    import json  # noqa: PLC0415

    try:
        policy = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        sites = policy.setdefault("sites", {})
    except (OSError, ValueError, AttributeError) as error:
        raise BadArgument(f"{path}: is no policy file ({error}); name another file") from None
    kept = (
        "kernel",
        "params",
        "label",
        "core_mhz",
        "mem_mhz",
        "slurm",
        "saving_pct",
        "slowdown_pct",
        "best_probability",
        "race_to_halt",
    )
    sites[arguments.site] = {
        "objective": arguments.objective,
        "max_slowdown": arguments.max_slowdown,
        "max_power_w": arguments.max_power_w,
        "model": found.model,
        "simulated": found.simulated,
        "kernels": [{key: row[key] for key in kept} for row in rows],
    }
    try:
        path.write_text(json.dumps(plain(policy), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadArgument(f"{path}: can't be written ({error.strerror})") from None
