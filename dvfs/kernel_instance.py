"""A kernel with its parameters, and the label by which people know it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class KernelInstance:
    """A kernel's name and the values of its parameters.

    A parameter of value None is omitted. ``label`` groups rows and names the kernel in reports:
    ``dp_fma level=l2 ops_per_word=4``. :func:`kernel_instances` makes the labels unique.
    """

    name: str
    params: Mapping[str, Any] = field(default_factory=dict, hash=False)
    label: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        """Set the default label."""
        if not self.label:
            object.__setattr__(self, "label", _plain_label(self.name, self.params))

    def as_dict(self) -> dict[str, Any]:
        """The kernel in JSON: ``kernel`` (its name), ``params`` and ``label``."""
        return {"kernel": self.name, "params": dict(self.params), "label": self.label}


def _plain_label(name: str, params: Mapping[str, Any]) -> str:
    return " ".join([name, *(f"{key}={value}" for key, value in params.items())])


def _exact_label(name: str, params: Mapping[str, Any]) -> str:
    """A label that is unique: text is in quotes, numbers are not."""
    return f"{json.dumps(name)} {json.dumps(params, sort_keys=True)}"


def kernel_instances(pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], KernelInstance]:
    """The instance of each (kernel, params as JSON), the form of a store's columns.

    The order of the parameters does not matter. Text that is not a JSON object becomes the value of
    a parameter ``params``. Labels are unique: instances whose plain labels would be equal, such as
    ``n=1`` and ``n="1"``, are labelled with their JSON.
    """
    values = {pair: (pair[0], _params_of(pair[1])) for pair in sorted(set(pairs))}
    return dict(zip(values, _labelled(values.values()), strict=True))


def relabelled(instances: Iterable[KernelInstance]) -> list[KernelInstance]:
    """Instances of several sites, with labels that are unique among all of them."""
    return _labelled([(instance.name, instance.params) for instance in instances])


def short_labels(instances: Iterable[KernelInstance]) -> dict[str, str]:
    """Label -> the name and only the parameters that distinguish the kernels of this name:
    ``double dram ops_per_word=4``.

    Omits parameters with one value in all of them, and the name of a parameter whose value is a
    word. Of lists, such as the words of a command, only differing items are shown. Returns the full
    labels if the short ones are not unique.
    """
    by_name: dict[str, list[KernelInstance]] = {}
    for instance in instances:
        by_name.setdefault(instance.name, []).append(instance)
    short = {}
    for name, same_name in by_name.items():
        differing = _differing(same_name)
        for instance in same_name:
            words = [name]
            for key, indices in differing.items():
                if key in instance.params:
                    text = _items(instance.params[key], indices)
                    words.append(text if text[:1].isalpha() else f"{key}={text}")
            short[instance.label] = " ".join(words)
    if len(set(short.values())) < len(short):
        return {label: label for label in short}
    return short


def _differing(instances: Sequence[KernelInstance]) -> dict[str, tuple[int, ...] | None]:
    """The parameters whose values differ among these kernels, and the indices of the list items
    that differ; None if the values are not lists of one length."""
    keys = dict.fromkeys(key for instance in instances for key in instance.params)
    differing: dict[str, tuple[int, ...] | None] = {}
    for key in keys:
        values = [instance.params.get(key) for instance in instances]
        if len(set(map(str, values))) == 1:
            continue
        lists = [value for value in values if isinstance(value, list)]
        if len(lists) == len(values) and len(set(map(len, lists))) == 1:
            columns = zip(*lists, strict=True)
            differing[key] = tuple(i for i, c in enumerate(columns) if len(set(map(str, c))) > 1)
        else:
            differing[key] = None
    return differing


def _items(value: Any, indices: tuple[int, ...] | None) -> str:
    if isinstance(value, list):
        return " ".join(str(value[i]) for i in (range(len(value)) if indices is None else indices))
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
