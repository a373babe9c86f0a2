"""Meters and clock controls describe themselves, and doctor needs nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from campaign.doctor.node_examination import examine_node
from campaign.verbs import doctor
from sites.clocks import CONTROLS, describe_controls, right_to_set
from sites.meters import METERS, describe_meters, open_meter
from sites.site_reading import find_site, read_site

NEW_METER = """\
from sites.meters.shared.meter import MeterDescription, MeterError

ABOUT = MeterDescription(
    kind="wattmeter", reads="a wattmeter", domains="node", needs="a wattmeter", options={}
)


def open_meter(root, options):
    ABOUT.check_options(options)
    raise MeterError("no wattmeter is connected", "connect one")
"""


@pytest.mark.parametrize("about", describe_meters(), ids=lambda about: about.kind)
def test_a_meter_describes_itself_and_refuses_options_it_does_not_list(about, tmp_path):
    assert METERS[about.kind].endswith(about.kind.replace("-", "_"))
    assert about.reads and about.domains and about.needs
    with pytest.raises(ValueError, match=f"the {about.kind} meter has no option colour"):
        open_meter(about.kind, {"colour": 1}, tmp_path)


@pytest.mark.parametrize("about", describe_controls(), ids=lambda about: about.control)
def test_a_control_describes_itself_and_its_rights(about, tmp_path):
    assert CONTROLS[about.control].endswith(about.control.replace("-", "_"))
    assert about.writes and about.needs
    right = right_to_set(about.control, tmp_path)
    assert right.control == about.control
    assert right.why
    # An empty tree has no clocks, so only a control that writes nothing can set them.
    assert right.can_set is not (about.sets_clocks or bool(about.axis))


def test_descriptions_load_no_library_of_a_vendor():
    program = (
        "import sys\n"
        "from sites.clocks import describe_controls\n"
        "from sites.meters import describe_meters\n"
        "describe_meters(), describe_controls()\n"
        "print(*{'pynvml', 'amdsmi', 'serial', 'numpy', 'pydantic'} & set(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


def test_doctor_tries_a_meter_that_is_one_file_and_one_line(tmp_path: Path, monkeypatch, capsys):
    (tmp_path / "wattmeter_for_a_test.py").write_text(NEW_METER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(METERS, "wattmeter", "wattmeter_for_a_test")
    report = examine_node(read_site(find_site("localhost", tmp_path)), tmp_path)
    tried = {meter.meter: meter for meter in report.meters_elsewhere}
    assert tried["wattmeter"].problem == "no wattmeter is connected"
    assert tried["wattmeter"].remedy == "connect one"
    doctor.print_examination(report)
    assert "wattmeter: no wattmeter is connected" in capsys.readouterr().out
