"""The BMC's power, from programs with the output of FreeIPMI and ipmitool."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from sites.meters import MeterError, open_meter
from sites.meters.ipmi import parse_watts
from tests.sites.meter_layouts.layout import copied
from tests.waiting import wait_until

TREES = Path(__file__).parent.parent / "trees"

IPMITOOL = """
    Instantaneous power reading:                   180 Watts
    Minimum during sampling period:                  8 Watts
    Maximum during sampling period:                264 Watts
    Average power reading over sample period:      181 Watts
    IPMI timestamp:                           Wed Mar 15 14:12:17 2023
    Sampling period:                          00000001 Seconds.
    Power reading state is:                   activated

"""


def write_program(root: Path, name: str, body: str) -> None:
    path = root / "usr/bin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def test_ipmitool_is_run_where_freeipmi_is_not(tmp_path: Path) -> None:
    (tmp_path / "text").write_text(IPMITOOL)
    body = f'[ "$*" = "dcmi power reading" ] && cat {tmp_path}/text'
    write_program(tmp_path, "ipmitool", body)
    meter = open_meter("ipmi", {}, tmp_path)
    assert meter.read().values == (180.0,)
    meter.close()


def test_a_command_given_in_the_site_file(tmp_path: Path) -> None:
    write_program(tmp_path, "as-root", 'echo "Current Power : 7$1 Watts"')
    meter = open_meter("ipmi", {"command": ["as-root", "3"]}, tmp_path)
    assert meter.read().values == (73.0,)
    assert meter.channels[0].domain == "node"
    meter.close()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (IPMITOOL.replace("activated", "deactivated"), "power measurement is deactivated"),
        (IPMITOOL.replace("180", "0"), "0 W, but a running node draws power"),
        (IPMITOOL.replace("180", "-1"), "printed no power, but Instantaneous"),
        (IPMITOOL + IPMITOOL, "no power"),
        ("", "but nothing"),
        ("DCMI request failed because: Invalid command (c1)", "no power.*Invalid command"),
    ],
)
def test_output_without_a_power(text: str, said: str) -> None:
    with pytest.raises(MeterError, match=said):
        parse_watts(text, "ipmitool dcmi power reading")


def sleeps_while_there_is(root: Path) -> Path:
    """A file: while it exists, the node's program takes 30 s."""
    copied("ipmi-node", root)
    flag, program = root / "flag", root / "usr/sbin/ipmi-dcmi"
    text = program.read_text()
    program.write_text(text.replace("read -r", f"[ -e {flag} ] && sleep 30\nread -r", 1))
    return flag


def test_reading_does_not_wait_for_a_slow_bmc(tmp_path: Path) -> None:
    slow = sleeps_while_there_is(tmp_path)
    meter = open_meter("ipmi", {"period_s": 0.01}, tmp_path)
    slow.touch()
    time.sleep(0.1)
    start = time.monotonic()
    first = meter.read()
    assert meter.read() == first
    assert first.values == (164.0,)
    assert time.monotonic() - start < 0.05
    meter.close()
    assert time.monotonic() - start < 5


def test_a_command_that_hangs_is_an_error_until_one_succeeds(tmp_path: Path) -> None:
    hang = sleeps_while_there_is(tmp_path)
    meter = open_meter("ipmi", {"period_s": 0.01, "limit_s": 0.3}, tmp_path)
    hang.touch()

    def fails() -> bool:
        try:
            meter.read()
        except MeterError as error:
            return "took more than 0.3 s" in error.what and "sudoers" in error.remedy
        return False

    wait_until(fails, 5.0)
    hang.unlink()
    wait_until(lambda: not fails(), 5.0)
    meter.close()


def test_the_output_of_a_bmc_that_refuses_is_reported(tmp_path: Path) -> None:
    write_program(tmp_path, "ipmi-dcmi", "echo 'ipmi-dcmi: permission denied' >&2; exit 1")
    before = threading.active_count()
    with pytest.raises(MeterError, match=r"status 1 \(output: ipmi-dcmi: permission.*NOPASS"):
        open_meter("ipmi", {}, tmp_path)
    assert threading.active_count() == before


def test_no_program_is_installed(tmp_path: Path) -> None:
    with pytest.raises(MeterError, match=r"ipmi-dcmi or ipmitool: not installed.*freeipmi"):
        open_meter("ipmi", {}, tmp_path)


def test_this_machine_has_a_bmc_or_the_error_says_what_is_missing() -> None:
    try:
        meter = open_meter("ipmi", {"limit_s": 5})
    except MeterError as error:
        assert error.remedy
    else:
        assert meter.read().values[0] > 0
        meter.close()
