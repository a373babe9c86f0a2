"""Kernels as names and parameters: labels, and what is derived from rows of them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.choice.candidates import all_candidates
from analysis.choice.losses import Predicted, case_losses
from analysis.choice.pick import pick
from analysis.energy.fit import fit
from analysis.energy.fit_file import as_kept, fit_of
from analysis.figures.labels import kernel_families, told_apart
from analysis.measurements.observations import Observations, kernel_names, observations, pooled
from dvfs.kernel_instance import KernelInstance, kernel_instances, short_labels
from tests.analysis.simulated_tk1 import simulated_columns


@pytest.fixture(scope="module")
def data() -> Observations:
    """The rows of a simulated Jetson TK1, its kernels given as a name and a parameter."""
    dataset = simulated_columns("default", per_family=4)
    name, _, ops = np.char.partition(dataset["kernel"].astype(str), "-").T
    params = [json.dumps({"ops": int(n), "level": None}) for n in ops]
    return observations(
        dataset.replaced({"kernel": name.astype(object), "params": np.array(params, object)}),
        "tk1",
    )


def test_a_label_is_the_name_and_the_values_that_are_there():
    kernel = kernel_instances([("fma", '{"level": "l2", "n": 4, "x": null}')])
    (only,) = kernel.values()
    assert only.label == "fma level=l2 n=4"
    assert only.as_dict() == {
        "kernel": "fma",
        "params": {"level": "l2", "n": 4},
        "label": only.label,
    }


@pytest.mark.parametrize(
    "pairs",
    [
        [("a", '{"n": 1}'), ("a", '{"n": "1"}')],
        [("a", '{"n": 1}'), ("a", '{"n": true}'), ("a", '{"n": "True"}')],
        [("a b=1", "{}"), ("a", '{"b": 1}'), ("a", '{"b": "1"}')],
        [("a", '{"b": "1 c=2"}'), ("a", '{"b": 1, "c": 2}')],
        [("a", '{"b": 1}'), ("a", '{"b": "1"}'), ('"a" {"b": 1}', "{}")],
        [("a", "[1]"), ("a", '{"params": "[1]", "n": 2}'), ("a", "")],
    ],
)
def test_different_kernels_never_share_a_label(pairs):
    labels = [kernel.label for kernel in kernel_instances(pairs).values()]
    assert len(set(labels)) == len(pairs)


def test_the_same_kernel_has_one_label_however_it_is_written():
    same = kernel_instances(
        [("a", '{"n": 1, "m": 2}'), ("a", '{"m":2, "n":1}'), ("a", '{"n": 1, "m": 2, "k": null}')]
    )
    assert len({kernel.label for kernel in same.values()}) == 1


def test_labels_do_not_depend_on_the_order_of_the_rows():
    pairs = [("a", '{"n": 1}'), ("a", '{"n": "1"}'), ("b", "{}"), ("a", '{"n": 2}')]
    assert kernel_instances(pairs) == kernel_instances(pairs[::-1])
    by_pair = {pair: kernel.label for pair, kernel in kernel_instances(pairs).items()}
    assert by_pair == {p: k.label for p, k in kernel_instances(pairs[::-1]).items()}


def test_rows_keep_their_kernels_when_some_are_taken_and_when_sites_are_pooled(data):
    some = data.take(data.setting == 0)
    for label in kernel_names(some):
        kernel = some.instance(label)
        assert label == f"{kernel.name} ops={kernel.params['ops']}"
    together, _ = pooled([data, replace(some, site="other")])
    assert kernel_names(together) == kernel_names(data)
    assert together.instance(kernel_names(data)[0]) == data.instance(kernel_names(data)[0])


def test_pooled_sites_tell_kernels_apart_that_one_site_alone_need_not(data):
    label = kernel_names(data)[0]
    mine = data.take(data.labels == label)
    number = replace(mine, instances={label: KernelInstance("k", {"n": 1}, label)})
    text = replace(mine, instances={label: KernelInstance("k", {"n": "1"}, label)})
    together, _ = pooled([number, text])
    assert len(kernel_names(together)) == 2
    assert [together.instance(k).params["n"] for k in together.labels[[0, -1]]] == [1, "1"]


def test_what_is_derived_carries_the_parameters(data):
    spoiled = data.energy_j.copy()
    spoiled[3] *= 3.0
    fitted = fit(replace(data, energy_j=spoiled), "choi", "known", robust=True)
    for label, among in all_candidates(data).items():
        kernel = data.instance(label).as_dict()
        for derived in (among, pick(among)):
            assert {name: getattr(derived, name) for name in kernel} == kernel
    for case in case_losses(data, Predicted(data.energy_j, data.time_s)):
        assert data.instance(case.label) == KernelInstance(case.kernel, case.params)
    (outlier,) = fitted.outliers
    assert outlier["kernel"] == data.instance(str(data.labels[3])).name
    assert outlier["params"] == data.instance(str(data.labels[3])).params
    assert fit_of(json.loads(json.dumps(as_kept(fitted)))).outliers == fitted.outliers


def test_a_fit_written_before_kernels_had_parameters_names_outliers_by_label(data):
    spoiled = data.energy_j.copy()
    spoiled[3] *= 3.0
    kept = as_kept(fit(replace(data, energy_j=spoiled), "choi", "known", robust=True))
    for outlier in kept["outliers"]:
        outlier["kernel"] = outlier.pop("label")
        del outlier["params"]
    assert [o["label"] for o in fit_of(kept).outliers] == [str(data.labels[3])]


def test_families_are_names_and_not_words_of_labels():
    kernels = [KernelInstance("gemm", {"m": m}) for m in (8, 16)]
    kernels += [KernelInstance("my solver", {"n": n}) for n in (1, 2)]
    assert kernel_families(kernels) == {
        "gemm m=8": "gemm",
        "gemm m=16": "gemm",
        "my solver n=1": "my solver",
        "my solver n=2": "my solver",
    }


def test_short_labels_name_only_what_differs_between_kernels():
    kernels = [
        KernelInstance("double", {"level": "dram", "n": 1, "threads": 1}),
        KernelInstance("double", {"level": "l2", "n": 2, "threads": 1}),
        KernelInstance("load", {"level": "l2", "threads": 1}),
    ]
    assert list(short_labels(kernels).values()) == ["double dram n=1", "double l2 n=2", "load"]
    alike = [KernelInstance("a", {"x": "b"}), KernelInstance("a", {"y": "b"})]
    assert short_labels(alike) == {kernel.label: kernel.label for kernel in alike}
    alone = KernelInstance("k", {"n": 4})
    assert short_labels([alone]) == {alone.label: "k"}


def test_short_labels_of_commands_show_the_words_that_differ():
    words = [["/opt/hist", "--in", f"/data/{name}.dat", "-n", n] for name in "ab" for n in "12"]
    commands = [KernelInstance("hist", {"argv": argv, "done": False}) for argv in words]
    assert list(short_labels(commands).values()) == [
        f"hist argv=/data/{name}.dat {n}" for name in "ab" for n in "12"
    ]
    several = [*commands, KernelInstance("solver", {"argv": ["/opt/solver"], "done": False})]
    assert list(short_labels(several).values())[-1] == "solver"
    uneven = [KernelInstance("c", {"argv": argv}) for argv in (["a"], ["a", "b"])]
    assert list(short_labels(uneven).values()) == ["c a", "c a b"]


@given(
    st.lists(st.text("ab/_= 12", max_size=60), unique=True, max_size=8),
    st.sampled_from(["", "/home/user/projects/lattice/build/", "tile_1=58 tile_2="]),
    st.sampled_from([20, 25, 30]),
)
def test_names_that_are_cut_stay_apart(ends, begin, characters):
    """Each as long as it may be, and of different ones none is the same."""
    names = [begin + end.strip() for end in ends]
    short = told_apart(names, characters)
    assert all(len(text) <= characters for text in short)
    assert len(set(short)) == len(set(names))
    assert all(text == name for text, name in zip(short, names, strict=True) if len(name) <= 15)
