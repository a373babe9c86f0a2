"""campaign kernels: every kernel has a guide, and every example can be planned."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaign.plan.plan import make_plan
from campaign.verbs.kernel_guide import SIMULATED_AT, kernel_guide
from kernels.registry import KERNELS, find_kernel
from tests.commands import answers, prints, refuses

CAMPAIGN = 'name = "example"\n[[sites]]\nsite = "localhost"\n\n'


@pytest.mark.parametrize("name", KERNELS)
def test_the_example_can_be_planned_and_everything_is_explained(name, tmp_path: Path):
    guide = kernel_guide(name)
    path = tmp_path / "c.toml"
    site = "localhost" if find_kernel(name).prepare else SIMULATED_AT[name]
    path.write_text(CAMPAIGN.replace("localhost", site) + guide.example)
    points = make_plan(path).points
    assert points and {point.kernel for point in points} == {name}
    text = prints("kernels", name)
    assert max(map(len, text.splitlines())) <= 100
    for field in find_kernel(name).params.model_fields:
        assert f"\n  {field}: " in text
    for counted, (_, unit) in guide.classes.items():
        assert f"  {counted} ({unit}): " in text


def test_all_kernels_are_listed():
    assert [entry["name"] for entry in answers("kernels")] == list(KERNELS)
    lines = prints("kernels").splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == list(KERNELS)


def test_an_unknown_kernel_is_answered_with_the_nearest():
    assert "did you mean 'dp_fma'" in refuses("kernels", "dp_fm")


@pytest.mark.parametrize(
    ("params", "said"),
    [("", True), (", counts = { dp = 1.0 }", False), (", reports_counts = true", False)],
)
def test_plan_says_what_follows_for_a_command_without_counts(tmp_path: Path, params, said):
    path = tmp_path / "c.toml"
    kernel = '[[kernels]]\nkernel = "command"\nlabel = "my-solver"\n'
    path.write_text(f'{CAMPAIGN}{kernel}params = {{ argv = ["true"]{params} }}')
    text = prints("plan", path)
    assert ("my-solver: no operation counts" in text) == said
    assert max(map(len, text.splitlines())) <= 100
