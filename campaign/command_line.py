"""The command line: ``campaign VERB``. Parsers only; each verb is imported when it is called."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from campaign.extras import explain_missing
from campaign.own_packages import foreign_package

EXIT_CODES = """\
exit codes: 0 done; 1 not all of it could be done (the last line says what is left);
2 something in what was given is wrong (the message says where, and what would do);
130 interrupted (run it again to go on)."""


def parser() -> argparse.ArgumentParser:
    """All verbs with their help."""
    top = argparse.ArgumentParser(
        prog="campaign",
        description="Measure kernels over sites and DVFS settings; fit an energy model; pick the "
        "clocks that cost the least energy.",
        epilog="example:\n  campaign demo\n\n" + EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = top.add_subparsers(metavar="VERB", required=True)

    demo = _verb(
        verbs,
        "demo",
        "demo:demo",
        "the whole chain on the simulated Jetson TK1",
        "campaign demo /tmp/demo",
    )
    demo.add_argument(
        "folder",
        nargs="?",
        default="campaign-demo",
        metavar="DIR",
        help="where the files, the store and the report go (default: %(default)s)",
    )

    plan = _verb(
        verbs,
        "plan",
        "launching:plan",
        "the points, counted and listed",
        "campaign plan campaign-demo/campaign.toml --limit 5",
    )
    plan.add_argument("campaign", metavar="CAMPAIGN.toml")
    plan.add_argument(
        "--scripts", action="store_true", help="show every job script that would be submitted"
    )
    plan.add_argument(
        "--limit",
        type=int,
        default=20,
        metavar="N",
        help="list at most N points (default: %(default)s)",
    )
    _json(plan)

    run = _verb(
        verbs,
        "run",
        "launching:run",
        "launch the points that the store lacks; resumes",
        "campaign run campaign-demo/campaign.toml --store campaign-demo/store",
    )
    run.add_argument("campaign", metavar="CAMPAIGN.toml")
    run.add_argument("--store", metavar="S", help="the store (default: beside the campaign file)")
    run.add_argument(
        "--retry-failed",
        action="store_true",
        help="try failed points again, whatever they failed of",
    )
    run.add_argument("--quiet", action="store_true", help="no progress")
    run.add_argument(
        "--dashboard",
        metavar="HOST:PORT",
        default="127.0.0.1:0",
        help="where Dask's dashboard of the first partition listens (default: a free port of "
        "loopback; whoever reaches it sees the campaign)",
    )
    _json(run)

    status = _verb(
        verbs,
        "status",
        "launching:status",
        "what is done, failed and left, and when it will end",
        "campaign status campaign-demo/store",
    )
    status.add_argument("store", metavar="S")
    status.add_argument(
        "--verify", action="store_true", help="read all traces too, and name the damaged ones"
    )
    _json(status)

    doctor = _verb(
        verbs,
        "doctor",
        "doctor:doctor",
        "what this node can measure and set, and how to mend what it can't",
        "campaign doctor localhost",
        "Of a site with Slurm partitions, a node of each is asked through a short job.",
    )
    doctor.add_argument("site", metavar="SITE", help="a site file, or a built-in site's name")
    doctor.add_argument(
        "--partition",
        action="append",
        metavar="P",
        help="ask a node of this Slurm partition (repeat; default: all of the site's)",
    )
    doctor.add_argument(
        "--here", action="store_true", help="look at this node alone, without a job"
    )
    _json(doctor)

    import_ = _verb(
        verbs,
        "import",
        "tables:import_",
        "measurements from elsewhere, in",
        "campaign import campaign-demo/table.csv --store imported",
    )
    import_.add_argument("table", metavar="TABLE", help="CSV, or Parquet by the ending .parquet")
    import_.add_argument("--store", required=True, metavar="S")
    import_.add_argument(
        "--map",
        metavar="MAP.toml",
        help="names other people's columns, and the factor to our units",
    )
    _json(import_)

    export = _verb(
        verbs,
        "export",
        "tables:export",
        "the measurements that are ok, out",
        "campaign export campaign-demo/store --csv table.csv",
    )
    export.add_argument("store", metavar="S")
    export.add_argument("--csv", required=True, metavar="F")

    fit = _verb(
        verbs,
        "fit",
        "modelling:fit",
        "fit the energy model to a site, and keep it",
        "campaign fit campaign-demo/store --site jetson-tk1",
        "Voltages are those that the measurements carry (measured, or a table's). Without any "
        "they are estimated from the energies where cross-validation says that it pays.",
    )
    fit.add_argument("store", metavar="S")
    fit.add_argument("--site", required=True, metavar="X")
    _model(fit)
    _json(fit)

    coefficients = _verb(
        verbs,
        "coefficients",
        "modelling:coefficients",
        "what has been fitted",
        "campaign coefficients campaign-demo/store --site jetson-tk1 --core-mhz 852 --mem-mhz 924",
    )
    coefficients.add_argument("store", metavar="S")
    coefficients.add_argument("--site", metavar="X", help="one site (default: all)")
    coefficients.add_argument(
        "--core-mhz", type=float, metavar="MHZ", help="show costs at this core clock ..."
    )
    coefficients.add_argument("--mem-mhz", type=float, metavar="MHZ", help="... and memory clock")
    _json(coefficients)

    crossval = _verb(
        verbs,
        "crossval",
        "modelling:crossval",
        "judge the model out of fold: its error, and what its picks lose",
        "campaign crossval campaign-demo/store --site jetson-tk1 --scheme leave-one-setting-out",
    )
    crossval.add_argument("store", metavar="S")
    crossval.add_argument(
        "--site",
        required=True,
        action="append",
        metavar="X",
        help="the site; for leave-one-site-out repeat it",
    )
    crossval.add_argument(
        "--scheme",
        default="leave-one-setting-out",
        help="leave-one-setting-out, holdout, kfold:K, leave-one-kernel-out, "
        "leave-one-node-out or leave-one-site-out (default: %(default)s)",
    )
    crossval.add_argument(
        "--train",
        action="append",
        metavar="CORE,MEM",
        help="for holdout: a setting to fit on (repeat; default: a random half)",
    )
    crossval.add_argument(
        "--time",
        choices=("measured", "predicted", "profile"),
        default="measured",
        help="the run time that the model is given; profile: from counts and the time at the "
        "fastest setting, for kernels left out (default: %(default)s)",
    )
    _model(crossval)
    _json(crossval)

    predict = _verb(
        verbs,
        "predict",
        "modelling:predict",
        "the best pair of clocks per kernel",
        "campaign predict campaign-demo/store --site jetson-tk1 --max-slowdown 0.05",
    )
    predict.add_argument("store", metavar="S")
    predict.add_argument("--site", required=True, metavar="X")
    predict.add_argument(
        "--kernel", metavar="K", help="a kernel's name, alone or with its parameters as listed"
    )
    predict.add_argument(
        "--objective",
        default="energy",
        metavar="O",
        help="energy, time, edp, ed2p, or weighted:ALPHA (alpha t + (1 - alpha) e, each relative "
        "to its least) (default: %(default)s)",
    )
    predict.add_argument(
        "--max-slowdown",
        type=float,
        metavar="F",
        help="at most this fraction slower than the fastest setting",
    )
    predict.add_argument(
        "--max-power-w", type=float, metavar="W", help="at most this mean power in watts"
    )
    predict.add_argument(
        "--profile",
        metavar="F",
        help="an application's profile instead of measured kernels: a TOML file with its counts "
        "and its time at one setting",
    )
    predict.add_argument(
        "--policy", metavar="F", help="also write the picks to this JSON file, by site and kernel"
    )
    predict.add_argument(
        "--all-settings",
        action="store_true",
        help="also pick legal settings that were not measured (time predicted)",
    )
    _json(predict)

    roofline = _verb(
        verbs,
        "roofline",
        "roofline:roofline",
        "balances in time and energy at a setting, and if racing to halt pays",
        "campaign roofline campaign-demo/store --site jetson-tk1 --cap-w 15",
        "Energies are the fit's, or else the regression's at that setting.",
    )
    roofline.add_argument("store", metavar="S")
    roofline.add_argument("--site", required=True, metavar="X")
    roofline.add_argument(
        "--setting", metavar="CORE,MEM", help="in MHz (default: the fastest setting)"
    )
    roofline.add_argument(
        "--cap-w", type=float, metavar="W", help="show what a cap on power in watts would do"
    )
    _json(roofline)

    report = _verb(
        verbs,
        "report",
        "reporting:report",
        "the report that a person reads",
        "campaign report campaign-demo/store -o report.html",
    )
    report.add_argument("store", metavar="S")
    report.add_argument(
        "-o", "--output", default="report.html", metavar="F", help="default: %(default)s"
    )

    figures = _verb(
        verbs,
        "figures",
        "figures:figures",
        "every figure and table as files for a paper",
        "campaign figures campaign-demo/store --site jetson-tk1 -o figures",
        "Figures as SVG and PDF, tables as CSV and LaTeX (booktabs).",
    )
    figures.add_argument("store", metavar="S")
    figures.add_argument("--site", metavar="X", help="one site (default: all)")
    figures.add_argument(
        "-o", "--output", default="figures", metavar="DIR", help="default: %(default)s"
    )
    figures.add_argument(
        "--cap-w", type=float, metavar="W", help="draw a cap on power in watts into the rooflines"
    )
    return top


def _verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    where: str,
    summary: str,
    example: str,
    more: str = "",
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}. {more}".strip(),
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verb.set_defaults(verb=where)
    return verb


def _json(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--json", action="store_true", help="print JSON")


def _model(verb: argparse.ArgumentParser) -> None:
    from analysis.energy.models import (  # noqa: PLC0415
        AUTO,
        MODEL_HELP,
        MODEL_NAMES,
        VOLTAGE_HELP,
        VOLTAGE_NAMES,
    )

    verb.add_argument(
        "--model",
        choices=MODEL_NAMES,
        default=AUTO,
        help=f"{MODEL_HELP} (default: %(default)s)",
    )
    verb.add_argument(
        "--voltage",
        choices=VOLTAGE_NAMES,
        default=AUTO,
        help=f"{VOLTAGE_HELP} (default: %(default)s)",
    )
    verb.add_argument(
        "--robust", action="store_true", help="rows far from the model count less (Huber)"
    )


ANALYSIS = ("modelling", "reporting", "figures", "roofline")
"""The modules of verbs that measure nothing."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb; its exit code. Bad input is one message on standard error and 2."""
    wrong = foreign_package()
    if wrong is not None:
        print(f"campaign: {wrong}", file=sys.stderr)
        return 2
    arguments = parser().parse_args(argv)
    module, _, function = arguments.verb.partition(":")
    if module in ANALYSIS:
        # Small matrices: threads of the linear algebra cost more than they bring, and much more
        # on a busy machine. Only here, before NumPy is loaded: a kernel keeps its threads.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        verb = getattr(import_module(f"campaign.verbs.{module}"), function)
        with explain_missing():
            return int(verb(arguments))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        from campaign.verbs.errors import exit_code  # noqa: PLC0415

        code = exit_code(error)
        if code is None:
            raise
        from campaign.verbs.show import say  # noqa: PLC0415

        say(f"campaign: {str(error) or type(error).__name__}", sys.stderr)
        return code
