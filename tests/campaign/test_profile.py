"""``campaign profile``: counters of profilers become a profile file that ``predict`` reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from campaign.plan.profile_file import read_profile
from campaign.profiles.profile import BUILT_IN_MAPS, read_counter_map
from campaign.verbs.command_line import main
from dvfs.input_files import built_in_files
from tests.commands import prints, refuses

PERF = """# started on Sun Nov 22 18:38:34 2026

115.17;msec;task-clock;115168822;100.00;0.409;CPUs utilized
64000;;fp_arith_inst_retired.scalar_double;115168822;100.00;;
0;;fp_arith_inst_retired.128b_packed_double;115168822;100.00;;
25000;;fp_arith_inst_retired.256b_packed_double:u;57584411;50.00;;
0;;fp_arith_inst_retired.512b_packed_double;115168822;100.00;;
<not supported>;;instructions;0;100.00;;
1000;;longest_lat_cache.miss;115168822;100.00;;
281652094;ns;duration_time;281652094;100.00;2.446;G/sec
"""
"""The layout and the first, sixth and last values: perf 6.1.187 here; the others are made up."""

LIKWID = """TABLE,Group 1 Raw,MEM_DP,8,
Event,Counter,HWThread 0,HWThread 1
INSTR_RETIRED_ANY,FIXC0,1000,2000
FP_ARITH_INST_RETIRED_SCALAR_DOUBLE,PMC1,10,20
FP_ARITH_INST_RETIRED_128B_PACKED_DOUBLE,PMC0,0,0
FP_ARITH_INST_RETIRED_256B_PACKED_DOUBLE,PMC2,5,5
FP_ARITH_INST_RETIRED_512B_PACKED_DOUBLE,PMC3,0,-
TABLE,Group 1 Raw STAT,MEM_DP,8,
Event,Counter,Sum,Min,Max,Avg
FP_ARITH_INST_RETIRED_SCALAR_DOUBLE STAT,PMC1,30,10,20,15
TABLE,Group 1 Metric,MEM_DP,3,
Metric,HWThread 0,HWThread 1
Runtime (RDTSC) [s],0.25,0.20
Memory data volume [GBytes],1.5,0.5
"""
NCU_LONG = """==PROF== Connected to process 1 (app)
12,345 cells
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","1","fmm_u","dram__bytes.sum","Mbyte","1.5"
"0","1","fmm_u","gpu__time_duration.sum","us","40.5"
"1","1","fmm_u","dram__bytes.sum","Kbyte","500"
"1","1","fmm_u","gpu__time_duration.sum","us","39.5"
"2","1","other","dram__bytes.sum","byte","9,000,000"
"2","1","other","gpu__time_duration.sum","ms","1"
"""
NCU_WIDE = """"ID","Kernel Name","dram__bytes.sum","gpu__time_duration.sum","lts__t_bytes.sum"
"","","byte","ns","byte"
"0","fmm_u","1,500,000","40,500","3,000,000"
"1","fmm_u","500,000","39,500","n/a"
"""
NSYS = """Processing [app.sqlite] with [cuda_gpu_kern_sum.py]...
"Time (%)","Total Time (ns)","Instances","Avg (ns)","Name"
80.0,"2,000,000",10,200000,"fmm_u"
20.0,"500,000",5,100000,"other"
"""
NVPROF = """==1== Profiling result:
"Device","Kernel","Invocations","Event Name","Min","Max","Avg","Total"
"GK20A","fmm",2,"fb_subp0_read_sectors",10,30,20,40
"GK20A","fmm",2,"fb_subp1_read_sectors",10,10,10,20
"GK20A","fmm",2,"l1_global_load_hit",1,1,1,2
==1== Metric result:
"Device","Kernel","Invocations","Metric Name","Metric Description","Min","Max","Avg"
"GK20A","fmm",2,"flops_dp_fma","FMA",100,100,100
"GK20A","fmm",2,"flops_dp_add","Add",10,10,10
"GK20A","fmm",2,"flops_dp_mul","Mul",5,5,5
"""
TEXTS = {
    "perf.csv": PERF,
    "likwid.csv": LIKWID,
    "ncu.csv": NCU_LONG,
    "wide.csv": NCU_WIDE,
    "nsys.csv": NSYS,
    "nvprof.csv": NVPROF,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "dram.toml").write_text(
        'description = "x"\nlayout = "ncu"\n[time_s]\n"gpu__time_duration.sum" = 1\n'
        '[counts.dram]\n"dram__bytes.sum" = 1\n'
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "counts", "time_s"),
    [
        (["perf.csv=perf-intel"], {"dp": 64_000 + 4 * 25_000, "dram": 64_000}, 0.281652094),
        (["likwid.csv=likwid-mem-dp"], {"dp": 30 + 40, "dram": 2e9}, 0.25),
        (["ncu.csv=dram.toml"], {"dram": 11e6}, 1.08e-3),
        (["ncu.csv=dram.toml", "--kernel", "^fmm"], {"dram": 2e6}, 80e-6),
        (["wide.csv=dram.toml"], {"dram": 2e6}, 80e-6),
        (["ncu.csv=dram.toml", "nsys.csv=nsys", "--time-s", "3"], {"dram": 11e6}, 3.0),
        # ncu has 1.08 ms, in which it counted: the time is nsys's, in either order.
        (["ncu.csv=dram.toml", "nsys.csv=nsys"], {"dram": 11e6}, 2.5e-3),
        (["nsys.csv=nsys", "ncu.csv=dram.toml"], {"dram": 11e6}, 2.5e-3),
        (
            ["nvprof.csv=nvprof-kepler", "nsys.csv=nsys", "--kernel", "fmm"],
            {
                "dp": 2 * 2 * (100.0 + 10.0 + 5.0),
                "l1": 256.0,
                "dram": 32.0 * 60,
            },
            2e-3,
        ),
    ],
)
def test_counters_become_counts_by_class(
    folder: Path, arguments: list[str], counts: dict[str, float], time_s: float
) -> None:
    out = folder / "out.toml"
    setting = ["--core-mhz", "852", "--mem-mhz", "924"]
    assert main(["profile", *arguments, *setting, "--name", "app", "-o", str(out)]) == 0
    profile, _ = read_profile(out)  # what predict --profile reads
    assert profile.kernel == "app"
    assert profile.counts == pytest.approx(counts)
    assert profile.time_s == pytest.approx(time_s)
    assert (profile.core_mhz, profile.mem_mhz) == (852, 924)


def test_multiplexed_counters_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "perf.csv=perf-intel"]) == 0
    printed = capsys.readouterr()
    assert "256b_packed_double was counted 50 % of the time" in printed.out  # in the file
    assert "256b_packed_double was counted 50 % of the time" in printed.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ncu.csv=nuc"], "unknown counter map 'nuc'; .*ncu"),
        (["ncu.csv"], "found 'ncu.csv'; must be FILE=MAP"),
        (["none.csv=ncu"], "none.csv: no such file"),
        (["perf.csv=dram.toml"], "has no counter in the layout 'ncu'"),
        (["ncu.csv=dram.toml", "--kernel", "gemm"], "or nothing of what is selected"),
        (["ncu.csv=dram.toml", "--kernel", "("], "not a regular expression"),
        (["nsys.csv=nsys"], "no operation counts"),
        # One would be lost, as of the processes of a program.
        (["perf.csv=perf-intel", "likwid.csv=likwid-mem-dp"], "likwid.csv: counts dp, which perf"),
        (["wide.csv=short.toml"], "has no value of lts__x.sum, which the map needs for l2"),
        (["wide.csv=below.toml"], "the counters of l2 give -2e.06, below zero"),
        ([], "FILE=MAP: give at least one"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(folder: Path, arguments: list[str], said: str) -> None:
    head = 'description = "x"\nlayout = "ncu"\n[counts.l2]\n'
    (folder / "short.toml").write_text(head + '"lts__t_bytes.sum" = 1\n"lts__x.sum" = 1\n')
    (folder / "below.toml").write_text(head + '"dram__bytes.sum" = -1\n')
    error = refuses("profile", *arguments).strip()
    assert "\n" not in error
    assert re.search(said, error), error


def test_table_iii_of_the_paper_is_the_map_of_kepler() -> None:
    """Choi & Vuduc 2016, Table III; by section IV-B an addition costs what a multiply-add does."""
    counters = read_counter_map("nvprof-kepler").counts
    assert counters["dp"] == {"flops_dp_fma": 2, "flops_dp_add": 2, "flops_dp_mul": 2}
    assert set(counters) == {"dp", "int", "l1", "shared", "l2", "dram"}


def test_maps_are_listed() -> None:
    lines = prints("profile", "--maps").splitlines()
    assert [line.split()[0] for line in lines] == list(built_in_files(BUILT_IN_MAPS))
