"""A policy for the tests, and Slurm's Lua interface as far as the filter uses it."""

from __future__ import annotations

import datetime
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from campaign.policy.policy_file import Entry, Match, Policy, PolicySetting, Promise

TODAY = datetime.date(2026, 11, 28)
LATER = datetime.date(2099, 1, 1)


def promise(saving: float = 10.0, around: float = 2.0) -> Promise:
    return Promise(
        saving_pct=saving,
        saving_pct_95=(saving - around, saving + around),
        slowdown_pct=3.0,
        slowdown_pct_95=(1.0, 5.0),
    )


def entry(name: str, mhz: float = 2000.0, **match: str) -> Entry:
    return Entry(
        name=name,
        match=Match(**match) if match else None,
        setting=PolicySetting(core_mhz=mhz),
        promise=promise(),
    )


def a_policy(*entries: Entry, **changes: Any) -> Policy:
    fields: dict[str, Any] = {
        "site": "s",
        "device": "cpu",
        "until": LATER,
        "control_pct": 0.0,
        "entries": list(entries),
    }
    return Policy(**fields | changes)


LUA = """
local folder, count = arg[1], 0
slurm = { SUCCESS = 0, log_info = function(...) io.stderr:write(string.format(...), "\\n") end }
os.time = function() return tonumber(arg[2]) + count end
-- Each submission is a process of its own.
local open = io.open
io.open = function(path, ...)
  if path == "/proc/self/stat" then
    count = count + 1
    return { read = function() return count * 7 .. " (srun)" end, close = function() end }
  end
  return open(path, ...)
end
assert(loadfile(folder .. "cli_filter.lua"))()
local environment = {}
os.getenv = function(name) return environment[name] end
for line in io.lines() do
  local given, words = {}, {}
  environment = {}
  for name, value in line:gmatch("([^\\1]+)\\2([^\\1]*)") do
    if name:sub(1, 1) == "$" then environment[name:sub(2)] = value
    elseif name == "argv" then words[#words + 1] = value
    else given[name] = value end
  end
  given.argv = words
  local code = slurm_cli_pre_submit(given, 0)
  assert(slurm_cli_setup_defaults(given, false) == 0)
  assert(slurm_cli_post_submit(0, 1, 0) == 0)
  print(table.concat({ code, given["cpu-freq"] or "", given["gpu-freq"] or "",
    given.comment or "" }, "\\t"))
end
"""


def through_filter(
    folder: Path, submissions: Sequence[Mapping[str, Any]]
) -> tuple[list[list[str]], str]:
    """Submit through the filter in ``folder`` by a Lua program of its own: for each submission
    [code, cpu-freq, gpu-freq, comment], and what was logged. ``$NAME`` is an environment variable,
    ``argv`` a list."""
    lines = []
    for one in submissions:
        pairs = [("type", "sbatch")]
        for name, value in one.items():
            pairs += [(name, each) for each in value] if name == "argv" else [(name, value)]
        lines.append("\1".join(f"{name}\2{value}" for name, value in pairs))
    noon = datetime.datetime.combine(TODAY, datetime.time(12))
    script = folder / "driver.lua"
    script.write_text(LUA)
    done = subprocess.run(
        ["lua5.1", str(script), f"{folder}/", str(int(noon.timestamp()))],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()], done.stderr


def sacct_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table as ``sacct --parsable2`` writes it; what a row leaves out is as of a job that ran."""
    columns = [
        *("JobID", "User", "JobName", "Partition", "State", "Start", "End", "ElapsedRaw"),
        *("ConsumedEnergyRaw", "ReqCPUFreqMax", "NNodes", "NodeList", "Comment"),
    ]
    usual = {
        "User": "u",
        "JobName": "app",
        "Partition": "p",
        "State": "COMPLETED",
        "Start": "2026-11-28T10:00:00",
        "End": "2026-11-28T10:01:40",
        "ElapsedRaw": "100",
        "ReqCPUFreqMax": "Unknown",
        "NNodes": "1",
        "NodeList": "n1",
    }
    lines = ["|".join(columns)]
    lines += ["|".join(str((usual | dict(row)).get(c, "")) for c in columns) for row in rows]
    return "\n".join(lines) + "\n"


def record(**changes: Any) -> str:
    """A line of ``campaign exec``."""
    fields = {
        "format": 1,
        "job_id": "1",
        "step_id": "0",
        "user": "u",
        "node": "n1",
        "input": "ab",
        "partition": "p",
        "mark": "app:2000/-",
        "arm": "policy",
        "start": "2026-11-28T10:00:00.000+00:00",
        "time_s": 10.0,
        "energy_j": 1000.0,
        "set": True,
        "clock_proof": "read back",
        "exit": 0,
    }
    return json.dumps(fields | changes) + "\n"
