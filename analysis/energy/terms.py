"""The energy model's terms: eq. 9 of seed 003, with the clock-tree term where asked for.

E = sum_k n_k c_k V_dom(k)^2 + (c1p V_p + c1m V_m + P_misc) T
    [+ (g_p V_p^2 f_p + g_m V_m^2 f_m) T]

A kernel without counts has two lumped terms of its own instead of the sum: a V_p^2 + b V_m^2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.measurements.observations import CantFit, Observations, kernel_names

MODELS = ("choi", "choi+clock")
"""The sets of terms, the plainer first."""

PJ_PER_V2 = "pJ/V^2"
J_PER_V2 = "J/V^2"
W_PER_V = "W/V"
W = "W"
W_PER_V2_MHZ = "W/(V^2 MHz)"


@dataclass(frozen=True)
class Term:
    """One coefficient of the model.

    ``kind``: ``class`` (of operations), ``lumped`` (a kernel's own), ``leak``, ``misc`` or
    ``clock``; ``domain``: core, mem or empty; ``of``: the class or the kernel.
    """

    name: str
    unit: str
    kind: str
    domain: str = ""
    of: str = ""

    @property
    def volt_power(self) -> int:
        """The power of its domain's voltage that it is multiplied with."""
        return {"leak": 1, "misc": 0}.get(self.kind, 2)


def model_terms(
    data: Observations, model: str, estimated: bool = False
) -> tuple[list[Term], list[dict[str, str]]]:
    """The terms that these observations can have, and those left out with the reason.

    A term is left out when its column is the same as another's by construction: then one of
    the two stands for both, and ``dropped`` says which. With ``estimated`` voltages a domain's
    voltage varies where its clock does.
    """
    has_counts = data.has_counts
    terms = [
        Term(f"c0_{name}", f"{PJ_PER_V2}", "class", data.domains[name], name)
        for name, values in data.counts.items()
        if (values > 0).any()
    ]
    dropped: list[dict[str, str]] = []
    volts = (data.core_mhz, data.mem_mhz) if estimated else (data.core_v, data.mem_v)
    core_varies, mem_varies = (_varies(v) for v in volts)
    for kernel in kernel_names(data.take(~has_counts)):
        terms.append(Term(f"a[{kernel}]", J_PER_V2, "lumped", "core", kernel))
        if core_varies or mem_varies:
            terms.append(Term(f"b[{kernel}]", J_PER_V2, "lumped", "mem", kernel))
    for domain, varies in (("core", core_varies), ("mem", mem_varies)):
        if varies:
            terms.append(Term(f"c1_{domain}", W_PER_V, "leak", domain))
        else:
            why = f"the {domain} voltage is the same in every row: merged into p_misc"
            dropped.append({"name": f"c1_{domain}", "why": why})
    terms.append(Term("p_misc", W, "misc"))
    if model == "choi+clock":
        for domain, mhz in (("core", data.core_mhz), ("mem", data.mem_mhz)):
            if _varies(mhz):
                terms.append(Term(f"g_{domain}", W_PER_V2_MHZ, "clock", domain))
            else:
                why = f"the {domain} clock is the same in every row: merged into p_misc"
                dropped.append({"name": f"g_{domain}", "why": why})
    return terms, dropped


def _varies(values: np.ndarray) -> bool:
    finite = values[np.isfinite(values)]
    return bool(finite.size) and bool(np.ptp(finite) > 1e-9 * np.max(np.abs(finite)))


def design_matrix(data: Observations, terms: list[Term]) -> np.ndarray:
    """float64 (rows, terms): joules that one unit of each coefficient adds to each row.

    Raises:
        CantFit: a class of operations that a term pays for is not counted.
    """
    core_v2, mem_v2 = data.core_v**2, data.mem_v**2
    square = {"core": core_v2, "mem": mem_v2}
    volt = {"core": data.core_v, "mem": data.mem_v}
    mhz = {"core": data.core_mhz, "mem": data.mem_mhz}
    columns = np.zeros((len(data), len(terms)))
    lumped = {name: data.kernel == name for name in {t.of for t in terms if t.kind == "lumped"}}
    for i, term in enumerate(terms):
        match term.kind:
            case "class":
                if term.of not in data.counts:
                    raise CantFit(
                        f"{data.site}: no measurement has counts of {term.of!r}, which "
                        f"{term.name} is paid for; fit again"
                    )
                n = data.counts[term.of]
                columns[:, i] = np.where(np.isfinite(n), n, 0.0) * 1e-12 * square[term.domain]
            case "lumped":
                columns[:, i] = np.where(lumped[term.of], square[term.domain], 0.0)
            case "leak":
                columns[:, i] = volt[term.domain] * data.time_s
            case "misc":
                columns[:, i] = data.time_s
            case "clock":
                clock = np.nan_to_num(mhz[term.domain])
                columns[:, i] = square[term.domain] * clock * data.time_s
    return columns
