"""The verbs of the command line, one module each.

A verb's module has ``SUMMARY`` (its line in the help), ``EXAMPLE`` (a command that works after
``campaign demo``), optionally ``MORE`` (further text of its help), ``add_arguments(parser)``, and
``run(arguments) -> int``. ``run`` calls a function that a notebook can call as well, prints its
result, and returns the exit code. Heavy modules are imported only in ``run``.
"""

VERBS = {
    "demo": "campaign.verbs.demo",
    "init": "campaign.verbs.init",
    "plan": "campaign.verbs.plan",
    "run": "campaign.verbs.run",
    "tune": "campaign.verbs.tune",
    "next": "campaign.verbs.next",
    "watch": "campaign.verbs.watch",
    "status": "campaign.verbs.status",
    "failures": "campaign.verbs.failures",
    "show": "campaign.verbs.show",
    "kernels": "campaign.verbs.kernels",
    "doctor": "campaign.verbs.doctor",
    "import": "campaign.verbs.import_",
    "export": "campaign.verbs.export",
    "fit": "campaign.verbs.fit",
    "coefficients": "campaign.verbs.coefficients",
    "crossval": "campaign.verbs.crossval",
    "profile": "campaign.verbs.profile",
    "predict": "campaign.verbs.predict",
    "policy": "campaign.verbs.policy",
    "exec": "campaign.verbs.exec",
    "verify": "campaign.verbs.verify",
    "variants": "campaign.verbs.variants",
    "compare": "campaign.verbs.compare",
    "codesign": "campaign.verbs.codesign",
    "chain": "campaign.verbs.chain",
    "roofline": "campaign.verbs.roofline",
    "report": "campaign.verbs.report",
    "figures": "campaign.verbs.figures",
}
"""Name -> module, in the order of the help."""
