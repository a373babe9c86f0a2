"""campaign init on what sinfo prints at other clusters: each partition is drafted or named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from campaign.doctor.slurm_nodes import SINFO, read_gpus
from campaign.verbs.command_line import main
from sites.site_reading import read_site
from tests.slurm_cluster import SlurmCluster
from tests.slurm_fixtures import need_slurm

GPU = "--gres=gpu:1"
Drafted = tuple[int, str | None, list[str]]
"""Cores, memory and directives of a drafted partition."""

# What sinfo prints -> the partitions of each drafted file, and those that have none. By hand.
OUTPUTS: dict[str, tuple[str, list[dict[str, Drafted]], list[str]]] = {
    "20.11, one partition": (
        "batch|20|32|192000|1-00:00:00|(null)|(null)|2:16:1|up",
        [{"batch": (32, "172800MB", [])}],
        [],
    ),
    "21.08, the default partition and a second one on the same nodes": (
        "batch|20|32|192000|2:00:00|(null)|skl|2:16:1|up\n"
        "long|20|32|192000|7-00:00:00|(null)|skl|2:16:1|up",
        [{"batch": (32, "172800MB", []), "long": (32, "172800MB", [])}],
        [],
    ),
    "22.05, a GPU first": (
        "gpu|4|64|512000|infinite|gpu:a100:4(S:0-1)|(null)|2:32:1|up",
        [{"gpu": (64, "460800MB", [GPU])}],
        [],
    ),
    "22.05, a GPU that is not first": (
        "gpu|4|64|512000|infinite|nic:1,gpu:a100:4(S:0-1)|(null)|2:32:1|up",
        [{"gpu": (64, "460800MB", [GPU])}],
        [],
    ),
    "23.02, sockets with commas, shards and no type": (
        "gpu|4|64|512000|infinite|craynetwork:4,shard:8(S:0,2),gpu:4(S:0,2)|x|2:32:1|up",
        [{"gpu": (64, "460800MB", [GPU])}],
        [],
    ),
    "23.11, resources that only begin like GPUs": (
        "cpu|4|64|512000|infinite|gpumem:80G,gpu_lic:2|(null)|2:32:1|up",
        [{"cpu": (64, "460800MB", [])}],
        [],
    ),
    "24.05, GPUs counted 0": (
        "cpu|4|64|512000|infinite|gpu:0|(null)|2:32:1|up",
        [{"cpu": (64, "460800MB", [])}],
        [],
    ),
    "24.11, MIG and no_consume": (
        "mig|1|64|512000|infinite|gpu:1g.5gb:7(S:1),gpu:a100:no_consume:1|(null)|2:32:1|up",
        [{"mig": (64, "460800MB", [GPU])}],
        [],
    ),
    "a dot in a name, and a partition without nodes": (
        "a100.long|12|16|64000|infinite|gpu:a100:4\n"
        "empty|0|0|0|infinite|(null)\n"
        "cpu|12|16|64000|infinite|(null)",
        [{"a100.long": (16, "57600MB", [GPU])}, {"cpu": (16, "57600MB", [])}],
        ["empty"],
    ),
    "only partitions without nodes": (
        "empty|0|0|0|infinite|(null)\ngone|0|8|16000|infinite|(null)", [], ["empty", "gone"],
    ),
    "nodes without CPUs": (
        "future|4|0|0|infinite|(null)|(null)|0:0:0|up\ncpu|1|8|16000|1:00|(null)|(null)|1:8:1|up",
        [{"cpu": (8, "14400MB", [])}],
        ["future"],
    ),
    "odd names": (
        "x:y|1|8|16000|30:00|(null)|(null)|1:8:1|up\n"
        "p@q+r~s=t|1|8|16000|30:00|(null)|(null)|1:8:1|up\n"
        "p%q!r&s|1|8|16000|30:00|(null)|(null)|1:8:1|up\n"
        "all*nodes(x)|1|8|16000|30:00|(null)|(null)|1:8:1|up\n"
        "Größe|1|8|16000|30:00|(null)|(null)|1:8:1|up\n"
        "_1|1|8|16000|30:00|(null)|(null)|1:8:1|up",
        [
            {
                name: (8, "14400MB", [])
                for name in ("x:y", "p@q+r~s=t", "p%q!r&s", "all*nodes(x)", "Größe", "_1")
            }
        ],
        [],
    ),
    "names that no file can have": (
        "a/b|1|8|16000|30:00|(null)|(null)|1:8:1|up\n"
        'c"d|1|8|16000|30:00|(null)|(null)|1:8:1|up\n'
        "-e|1|8|16000|30:00|(null)|(null)|1:8:1|up\n"
        f"{'f' * 65}|1|8|16000|30:00|(null)|(null)|1:8:1|up\n"
        "good|1|8|16000|30:00|(null)|(null)|1:8:1|up",
        [{"good": (8, "14400MB", [])}],
        ["a/b", 'c"d', "-e", "f" * 65],
    ),
    "memory that Slurm was not given": (
        "cpu|12|16|1|infinite|(null)|(null)|16:1:1|up",
        [{"cpu": (16, None, ["--mem=0"])}],
        [],
    ),
    "no memory, with GPUs": (
        "gpu|12|16|1|infinite|gpu:2|(null)|16:1:1|up",
        [{"gpu": (16, None, [GPU, "--mem=0"])}],
        [],
    ),
    "without --exact: 16+ and 64000+": (
        "all|3|16+|64000+|infinite|(null)|(null)|1+:16+:1|up",
        [{"all": (16, "57600MB", [])}],
        [],
    ),
    "without --noconvert: 1K CPUs": (
        "big|1|1K|4M|infinite|(null)|(null)|16:64:1|up",
        [{"big": (1024, f"{4 * 1024 * 1024 * 9 // 10}MB", [])}],
        [],
    ),
    "fields that are empty or n/a": (
        "cpu||16|n/a|n/a|||n/a|\nother|n/a|n/a|n/a|n/a|n/a|n/a|n/a|n/a",
        [{"cpu": (16, None, ["--mem=0"])}],
        ["other"],
    ),
    "drained nodes and a partition that is down": (
        "cpu|2|16|64000|infinite|(null)|(null)|2:8:1|down\n"
        "cpu2|2|16|64000|infinite|(null)|(null)|2:8:1|drain\n"
        "cpu3|2|16|64000|infinite|(null)|(null)|2:8:1|inactive",
        [{name: (16, "57600MB", []) for name in ("cpu", "cpu2", "cpu3")}],
        [],
    ),
    "nodes of a cloud": (
        "cloud|100|96|393216|infinite|(null)|cloud,c5|1:48:2|up",
        [{"cloud": (96, "353894MB", [])}],
        [],
    ),
    "two sizes in one partition, kept apart by a feature": (
        "mixed|8|64|256000|infinite|(null)|icx,ib|2:32:1|up\n"
        "mixed|8|128|512000|infinite|(null)|ib,spr|2:64:1|up",
        [
            {"mixed": (64, "230400MB", ["--constraint=icx"])},
            {"mixed": (128, "460800MB", [])},  # the others are too small for it
        ],
        [],
    ),
    "two sizes in one partition, and no feature": (
        "mixed|8|64|256000|infinite|(null)|ib|2:32:1|up\n"
        "mixed|8|128|512000|infinite|(null)|ib|2:64:1|up",
        [{"mixed": (64, "230400MB", [])}, {"mixed": (128, "460800MB", [])}],
        [],
    ),
    "two types of GPU in one partition": (
        "gpu|4|64|512000|infinite|gpu:a100:4(S:0-1)|(null)|2:32:1|up\n"
        "gpu|9|64|512000|infinite|gpu:v100:4(S:0-1)|(null)|2:32:1|up",
        [
            {"gpu": (64, "460800MB", ["--gres=gpu:a100:1"])},
            {"gpu": (64, "460800MB", ["--gres=gpu:v100:1"])},
        ],
        [],
    ),
    "as many GPUs, kept apart by a feature": (
        "gpu|4|64|512000|infinite|gpu:2|pcie|2:32:1|up\n"
        "gpu|9|64|512000|infinite|gpu:4|sxm|2:32:1|up",
        [
            {"gpu": (64, "460800MB", [GPU, "--constraint=pcie"])},
            {"gpu": (64, "460800MB", [GPU, "--constraint=sxm"])},
        ],
        [],
    ),
    "two features that only together keep two others away": (
        "p|1|8|16000|1:00:00|(null)|a,b|1:8:1|up\n"
        "p|1|16|32000|1:00:00|(null)|a|2:8:1|up\n"
        "p|1|16|64000|1:00:00|(null)|b|2:8:1|up",
        [
            {"p": (8, "14400MB", ["--constraint=b&a"])},
            {"p": (16, "28800MB", ["--constraint=a"])},
            {"p": (16, "57600MB", [])},
        ],
        [],
    ),
    "a feature that some of the other nodes have, too": (
        "p|1|8|16000|1:00:00|(null)|a|1:8:1|up\n"
        "p|1|16|32000|1:00:00|(null)|a|2:8:1|up\n"
        "p|1|16|32000|1:00:00|(null)|b|2:8:1|up",
        [{"p": (8, "14400MB", [])}, {"p": (16, "28800MB", [])}],
        [],
    ),
    "other sockets with as many CPUs": (
        "one|4|64|256000|infinite|(null)|(null)|1:64:1|up\n"
        "two|4|64|256000|infinite|(null)|(null)|2:16:2|up",
        [{"one": (64, "230400MB", [])}, {"two": (64, "230400MB", [])}],
        [],
    ),
    "features name the processor": (
        "skl|4|40|192000|infinite|(null)|skylake|2:20:1|up\n"
        "csl|4|40|192000|infinite|(null)|cascadelake|2:20:1|up",
        [{"skl": (40, "172800MB", [])}, {"csl": (40, "172800MB", [])}],
        [],
    ),
    "racks, and memory that differs a little": (
        "cpu|4|40|191800|infinite|(null)|skl,rack1|2:20:1|up\n"
        "cpu|4|40|191000|infinite|(null)|skl,rack2|2:20:1|up\n"
        "long|4|40|191800|infinite|(null)|rack3,skl|2:20:1|up\n"
        "long|2|40|192000|infinite|(null)|rack4,skl|2:20:1|up",
        [{"cpu": (40, "171900MB", []), "long": (40, "172620MB", [])}],
        [],
    ),
    "twice the memory": (
        "cpu|4|40|192000|infinite|(null)|skl|2:20:1|up\n"
        "fat|4|40|384000|infinite|(null)|skl|2:20:1|up",
        [{"cpu": (40, "172800MB", [])}, {"fat": (40, "345600MB", [])}],
        [],
    ),
    "a greeting before the lines, and a short one": (
        "Welcome to Cluster7\n\nq|1|2\ncpu|4|40|192000|infinite|(null)|skl|2:20:1|up\n",
        [{"cpu": (40, "172800MB", [])}],
        [],
    ),
    "lines that end as on Windows, and a partition without nodes that has some below": (
        "p|0|16|64000|infinite|(null)|(null)|2:8:1|down\r\n"
        "p|4|16|64000|infinite|(null)|(null)|2:8:1|up\r\n\r\n",
        [{"p": (16, "57600MB", [])}],
        [],
    ),
    "other hardware under names that differ in what a file's name cannot have": (
        "a:b|4|16|64000|infinite|(null)|x|2:8:1|up\n"
        "a*b|4|32|64000|infinite|(null)|x|2:16:1|up\n"
        "a b|4|64|64000|infinite|(null)|x|2:32:1|up\n"
        "a_b|1|8|64000|infinite|(null)|x|1:8:1|up\n"
        "a-b|1|4|64000|infinite|(null)|x|1:4:1|up",
        [
            {"a:b": (16, "57600MB", [])},
            {"a*b": (32, "57600MB", [])},
            {"a_b": (8, "57600MB", [])},
            {"a-b": (4, "57600MB", [])},
        ],
        ["a b"],
    ),
    "hybrid cores, some nodes with GPUs of two types, and features with brackets": (
        "hyb|3|32|128000|365-00:00:00|gpu:rtx_4090:1(IDX:0),gpu:rtx-4080:2(S:0),mps:100|"
        "p-core,ib(4),rack#3|1:24:2|up\n"
        "hyb|1|32|128000|365-00:00:00|(null)|p-core,e-core|1:24:2|up",
        [
            {"hyb": (32, "115200MB", [GPU])},
            {"hyb": (32, "115200MB", ["--constraint=e-core"])},
        ],
        [],
    ),
    "nothing": ("", [], []),
}  # fmt: skip
CAMPAIGN = '[[kernels]]\nkernel = "idle"\n'


def fake_sinfo(folder: Path, printed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Slurm whose sinfo prints a text."""
    (folder / "sinfo.txt").write_text(printed)
    (folder / "bin").mkdir(exist_ok=True)
    for name, script in (("sinfo", f"cat {folder}/sinfo.txt"), ("scontrol", "echo ClusterName=c")):
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin:/usr/bin:/bin")
    monkeypatch.delenv("SLURM_CONF", raising=False)


def drafted(path: Path) -> dict[str, Drafted]:
    """The Slurm partitions of a site file, as the project reads it."""
    partitions = read_site(path).partitions
    return {
        name: (p.cores, p.memory if "memory" in p.model_fields_set else None, p.directives)
        for name, p in partitions.items()
        if p.scheduler == "slurm"
    }


@pytest.mark.parametrize("printed", OUTPUTS)
def test_every_partition_is_drafted_by_its_hardware_or_named(
    printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    text, expected, left_out = OUTPUTS[printed]
    fake_sinfo(tmp_path, text, monkeypatch)
    monkeypatch.chdir(tmp_path)
    assert main(["init", "-o", "o.toml"]) == 0
    files = sorted(tmp_path.glob("o*.toml"))
    assert [f"campaign doctor {file.name}" in file.read_text() for file in files] == [True] * len(
        files
    )

    def in_order(sites: list[dict[str, Drafted]]) -> list[list[tuple[str, Drafted]]]:
        return sorted(sorted(site.items()) for site in sites)

    assert in_order([site for site in map(drafted, files) if site]) == in_order(expected)
    first = (tmp_path / "o.toml").read_text()
    for name in left_out:
        assert repr(name) in first
    for name in {name for site in expected for name in site} - set(drafted(tmp_path / "o.toml")):
        assert f" {name} (" in first  # where it is
    sites = "".join(f'[[sites]]\nsite = "{file.name}"\n' for file in files)
    (tmp_path / "campaign.toml").write_text(f'name = "c"\n{sites}{CAMPAIGN}')
    assert main(["plan", "campaign.toml"]) == 0
    capsys.readouterr()
    assert main(["init"]) == 0
    (tmp_path / "printed.toml").write_text(capsys.readouterr().out)
    assert drafted(tmp_path / "printed.toml") == drafted(tmp_path / "o.toml")


def test_thirty_outputs_are_tried() -> None:
    assert len(OUTPUTS) >= 30


def test_no_file_of_several_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_sinfo(tmp_path, OUTPUTS["twice the memory"][0], monkeypatch)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "o-fat.toml").write_text("mine")
    assert main(["init", "-o", "o.toml"]) == 2
    assert sorted(file.name for file in tmp_path.glob("o*.toml")) == ["o-fat.toml"]
    assert main(["init", "-o", "o.toml", "--force"]) == 0
    assert (drafted(tmp_path / "o.toml"), drafted(tmp_path / "o-fat.toml")) == (
        {"cpu": (40, "172800MB", [])},
        {"fat": (40, "345600MB", [])},
    )
    assert read_site(tmp_path / "o-fat.toml").name == "c-fat"


def test_the_first_file_is_for_the_partition_whose_job_this_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_sinfo(tmp_path, OUTPUTS["twice the memory"][0], monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLURM_JOB_PARTITION", "fat")
    assert main(["init", "-o", "o.toml", "--name", "x" * 64]) == 0
    assert list(drafted(tmp_path / "o.toml")) == ["fat"]
    assert list(drafted(tmp_path / "o-cpu.toml")) == ["cpu"]
    assert read_site(tmp_path / "o-cpu.toml").name == "x" * 60 + "-cpu"


FIELD = st.sampled_from(["", "0", "1", "16", "64+", "1K", "64000", "n/a", "(null)", "infinite"])
LINES = st.lists(
    st.tuples(
        st.one_of(st.sampled_from(["cpu", "gpu.x", "a:b"]), st.text(max_size=6)),
        FIELD,
        FIELD,
        FIELD,
        st.sampled_from(["infinite", "30:00", "1-00:00:00", "0:00", "UNLIMITED", "n/a", ""]),
        st.one_of(
            st.sampled_from(["(null)", "gpu:2", "nic:1,gpu:a:1(S:0,1)"]), st.text(max_size=8)
        ),
        st.one_of(st.sampled_from(["(null)", "a", "a,b", "b,c"]), st.text(max_size=5)),
        st.sampled_from(["2:8:1", "1+:8:2", "", "0:0:0"]),
        st.sampled_from(["up", "down", ""]),
    ),
    max_size=6,
)


@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(lines=LINES)
def test_any_lines_give_valid_files_that_pool_no_different_nodes(
    lines: list[tuple[str, ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("any")
    with pytest.MonkeyPatch.context() as monkeypatch:
        printed = "\n".join("|".join(line) for line in lines)
        fake_sinfo(folder, printed.encode("utf-8", "replace").decode(), monkeypatch)
        monkeypatch.chdir(folder)
        assert main(["init", "-o", "o.toml"]) == 0
    first = (folder / "o.toml").read_text()
    names = set()
    for file in folder.glob("o*.toml"):
        site = drafted(file)
        assert len({(p[0], any("gres" in d for d in p[2])) for p in site.values()}) <= 1
        names |= set(site)
    for line in (folder / "sinfo.txt").read_text().splitlines():
        fields = line.split("|")
        if len(fields) >= 6 and (name := fields[0].strip()):
            assert name in names or "was left out" in first


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu", (("", 1),)),
        ("gpu:2080:4", (("2080", 4),)),
        ("gpu:tesla:2,gpu:kepler:2(S:1),mps:400", (("kepler", 2), ("tesla", 2))),
        ("gpu:nvidia_h100_80gb_hbm3:8(S:0-1)", (("nvidia_h100_80gb_hbm3", 8),)),
        ("shard:a100:16", ()),
        ("", ()),
    ],
)
def test_gpus_among_the_resources(gres: str, gpus: tuple[tuple[str, int], ...]) -> None:
    assert read_gpus(gres) == gpus


@pytest.mark.slurm
def test_a_real_slurm_takes_odd_names_and_nodes_without_memory(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is drafted is what Slurm accepts: job scripts by sbatch, and doctor's srun."""
    need_slurm()
    names = {"a100.long": 1, "x:y&(z)": 1}
    with SlurmCluster(tmp_path_factory.mktemp("odd"), "odd", names) as cluster:
        monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
        monkeypatch.chdir(tmp_path)
        lines = cluster.run(*SINFO).splitlines()
        assert [line.split("|")[:3] for line in lines] == [[name, "1", "4"] for name in names]
        assert main(["init", "-o", "o.toml"]) == 0
        assert list(read_site(tmp_path / "o.toml").partitions) == list(names)
        text = (tmp_path / "o.toml").read_text()
        # As drafted for nodes without memory: the partitions' scripts ask for all of it.
        without = re.sub(r"^memory = .*$", 'directives = ["--mem=0"]', text, flags=re.MULTILINE)
        (tmp_path / "o.toml").write_text(without)
        (tmp_path / "c.toml").write_text(f'name = "c"\n[[sites]]\nsite = "o.toml"\n{CAMPAIGN}')
        conf = cluster.conf.read_text()
        cluster.conf.write_text(conf.replace(" RealMemory=4000", ""))
        cluster.run("scontrol", "reconfigure")
        from campaign.launch.slurm import SlurmScheduler

        for name in names:
            script = SlurmScheduler(read_site(tmp_path / "o.toml")).job_script(name, "try")
            cluster.run("sbatch", "--test-only", stdin=script)
            assert main(["doctor", "o.toml", "--partition", name]) in (0, 1)  # 2: srun refused it
        again = tmp_path / "again.toml"
        assert main(["init", "-o", str(again)]) == 0
        assert drafted(again) == {name: (4, None, ["--mem=0"]) for name in names}
