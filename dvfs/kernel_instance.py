"""A kernel with its parameters: structured for programs, and one label for people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

    from dvfs.dataset import Columns


@dataclass(frozen=True)
class KernelInstance:
    """A kernel's name and the values of its parameters.

    A parameter without a value (None) is left out. ``label`` is the text by which rows are
    grouped and reports name the kernel: ``dp_fma level=l2 ops_per_word=4``.
    :func:`kernel_instances` makes labels that differ wherever the kernels do.
    """

    name: str
    params: Mapping[str, Any] = field(default_factory=dict, hash=False)
    label: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        """Fill in the label where none is given."""
        if not self.label:
            object.__setattr__(self, "label", _plain_label(self.name, self.params))

    def as_dict(self) -> dict[str, Any]:
        """What JSON says of a kernel: ``kernel`` (its name), ``params`` and ``label``."""
        return {"kernel": self.name, "params": dict(self.params), "label": self.label}


def _plain_label(name: str, params: Mapping[str, Any]) -> str:
    return " ".join([name, *(f"{key}={value}" for key, value in params.items())])


def _exact_label(name: str, params: Mapping[str, Any]) -> str:
    """A label that two different kernels cannot share: text is in quotes, numbers are not."""
    return f"{json.dumps(name)} {json.dumps(params, sort_keys=True)}"


def kernel_instances(pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], KernelInstance]:
    """The instance of each (kernel, params as JSON), as a store's columns hold them.

    Two pairs with the same name and values are one instance, in whatever order the parameters
    stand. Text that is no JSON object is the value of a parameter ``params``. Different instances
    never share a label: where the plain labels would be the same, as of ``n=1`` and ``n="1"``,
    the instances concerned are labelled with their JSON.
    """
    values = {pair: (pair[0], _params_of(pair[1])) for pair in sorted(set(pairs))}
    return dict(zip(values, _labelled(values.values()), strict=True))


def relabelled(instances: Iterable[KernelInstance]) -> list[KernelInstance]:
    """Instances of several sites with labels that differ wherever the kernels do."""
    return _labelled([(instance.name, instance.params) for instance in instances])


def short_labels(instances: Iterable[KernelInstance]) -> dict[str, str]:
    """Label -> the name with only what tells the kernels of this name apart:
    ``double dram ops_per_word=4``.

    Parameters that have one value in all of them are left out, and so is the name of a parameter
    whose value is a word. Of lists, such as the words of a command, only the places are shown
    where they differ. The labels themselves where the short ones would be the same.
    """
    by_name: dict[str, list[KernelInstance]] = {}
    for instance in instances:
        by_name.setdefault(instance.name, []).append(instance)
    short = {}
    for name, alike in by_name.items():
        columns = _differing(alike)
        for instance in alike:
            words = [name]
            for key, places in columns.items():
                if key in instance.params:
                    text = _at_places(instance.params[key], places)
                    words.append(text if text[:1].isalpha() else f"{key}={text}")
            short[instance.label] = " ".join(words)
    if len(set(short.values())) < len(short):
        return {label: label for label in short}
    return short


def _differing(instances: Sequence[KernelInstance]) -> dict[str, tuple[int, ...] | None]:
    """The parameters that do not have one value in all of these kernels, and the places at which
    their values differ; None where they are no lists of one length."""
    keys = dict.fromkeys(key for instance in instances for key in instance.params)
    found: dict[str, tuple[int, ...] | None] = {}
    for key in keys:
        values = [instance.params.get(key) for instance in instances]
        if len(set(map(str, values))) == 1:
            continue
        lists = [value for value in values if isinstance(value, list)]
        if len(lists) == len(values) and len(set(map(len, lists))) == 1:
            columns = zip(*lists, strict=True)
            found[key] = tuple(i for i, own in enumerate(columns) if len(set(map(str, own))) > 1)
        else:
            found[key] = None
    return found


def _at_places(value: Any, places: tuple[int, ...] | None) -> str:
    if isinstance(value, list):
        return " ".join(str(value[i]) for i in (range(len(value)) if places is None else places))
    return str(value)


def _labelled(values: Iterable[tuple[str, Mapping[str, Any]]]) -> list[KernelInstance]:
    values = list(values)
    exact = [_exact_label(*value) for value in values]
    plain: dict[str, str] = {}
    for text, value in zip(exact, values, strict=True):
        plain.setdefault(text, _plain_label(*value))
    owners = Counter(plain.values())
    labels = {text: label if owners[label] == 1 else text for text, label in plain.items()}
    if len(set(labels.values())) < len(labels):  # a plain label that looks like an exact one
        labels = {text: text for text in labels}
    return [
        KernelInstance(name, params, labels[text])
        for (name, params), text in zip(values, exact, strict=True)
    ]


def _params_of(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text) if text else {}
    except ValueError:
        values = text
    if not isinstance(values, dict):
        return {"params": text}
    return {name: value for name, value in values.items() if value is not None}


def dataset_kernels(dataset: xr.Dataset | Columns) -> dict[tuple[str, str], KernelInstance]:
    """The instance of each (kernel, params) in a store's Dataset, labelled among all its rows."""
    return kernel_instances(_pairs(dataset)[0])


def kernels_of_rows(dataset: xr.Dataset | Columns) -> tuple[list[KernelInstance], np.ndarray]:
    """The distinct instances of a store's Dataset by label, and the index of each row's among
    them, int64 (rows,)."""
    import numpy as np  # noqa: PLC0415

    pairs, pair = _pairs(dataset)
    known = kernel_instances(pairs)
    of_label = {one.label: one for one in known.values()}
    number = {label: i for i, label in enumerate(sorted(of_label))}
    number_of_pair = np.array([number[known[own].label] for own in pairs], np.int64)
    return [of_label[label] for label in number], number_of_pair[pair]


def _pairs(dataset: xr.Dataset | Columns) -> tuple[list[tuple[str, str]], np.ndarray]:
    """The distinct (kernel, params), and the index of each row's, int64 (rows,)."""
    from dvfs.dataset import texts_of  # noqa: PLC0415
    from dvfs.groups import Groups  # noqa: PLC0415
    from dvfs.texts import Texts, group_codes  # noqa: PLC0415

    kernel = texts_of(dataset, "kernel")
    has_params = "params" in dataset
    params = texts_of(dataset, "params") if has_params else Texts.same("", len(kernel))
    groups = Groups(group_codes([kernel, params]))
    return [(kernel[i], params[i]) for i in groups.firsts.tolist()], groups.numbers()
