"""Everything that reads files from elsewhere."""

from __future__ import annotations

from tests.campaign.test_wrong_files import CAMPAIGN, SITE
from tests.faults.fuzz.damage import seal_manifests
from tests.faults.fuzz.known_cases import (
    COUNTS_CASES,
    CRAY_CASES,
    FIT_CASES,
    IPMI_CASES,
    JOURNAL_CASES,
    MAP_CASES,
    PLAN_CASES,
    RECORDED,
    RECORDED_CASES,
    SLURM_CASES,
    STORE_CASES,
    TABLE_CASES,
    many_rows,
)
from tests.faults.fuzz.reading import (
    read_any_table,
    read_counts_file,
    read_cray,
    read_fits,
    read_import,
    read_ipmi,
    read_journal,
    read_map_file,
    read_plan,
    read_powermon,
    read_profile_file,
    read_recorded,
    read_slurm,
    read_store,
)
from tests.faults.fuzz.right_files import (
    GTX,
    GTX_MAP,
    IPMI,
    IPMITOOL,
    MAP,
    MAPPED,
    POWERMON,
    PROFILE,
    TABLE,
    files_in,
    parquet_spares,
    prepare_cray,
    prepare_import,
    prepare_journal,
    prepare_parquet,
    prepare_slurm,
    prepare_store,
)
from tests.faults.fuzz.target import Target

TARGETS = (
    Target(
        "table-csv",
        2.5,
        files_in(table__csv=TABLE),
        lambda folder, index: read_any_table(folder, "table.csv"),
        cases=TABLE_CASES,
    ),
    Target(
        "table-parquet",
        1.5,
        prepare_parquet,
        lambda folder, index: read_any_table(folder, "table.parquet"),
        parquet_spares,
        {"many rows in few bytes": many_rows},
    ),
    Target("map", 2, files_in(table__csv=MAPPED, map__toml=MAP), read_map_file, cases=MAP_CASES),
    Target(
        "map-blocks",
        0.5,
        files_in(
            table__csv=b"".join(GTX.read_bytes().splitlines(True)[:30]),
            map__toml=GTX_MAP.read_bytes(),
        ),
        read_map_file,
    ),
    Target("import", 0.4, prepare_import, read_import, ways=2),
    Target(
        "plan", 2, files_in(c__toml=CAMPAIGN, s__toml=SITE), read_plan, cases=PLAN_CASES, ways=2
    ),
    Target(
        "profile",
        0.7,
        files_in(profile__toml=PROFILE),
        read_profile_file,
    ),
    Target(
        "counts",
        0.7,
        files_in(counts__json='{"sp": 1000000, "dram": 2.5e9, "my_class": 3}'),
        read_counts_file,
        cases=COUNTS_CASES,
    ),
    Target("recorded", 1, files_in(trace__csv=RECORDED), read_recorded, cases=RECORDED_CASES),
    Target(
        "ipmi",
        0.6,
        files_in(output__txt=IPMI),
        read_ipmi,
        lambda files: {"output.txt": [IPMITOOL.encode()]},
        IPMI_CASES,
    ),
    Target("cray", 0.6, prepare_cray, read_cray, cases=CRAY_CASES),
    Target("powermon", 0.6, files_in(lines__txt=POWERMON), read_powermon),
    Target(
        "slurm",
        0.4,
        prepare_slurm,
        read_slurm,
        cases=SLURM_CASES,
        changed=r"\.txt$",
    ),
    Target("journal", 2, prepare_journal, read_journal, cases=JOURNAL_CASES),
    Target(
        "store",
        0.5,
        prepare_store,
        read_store,
        cases=STORE_CASES,
        changed="^store/",
        seal=seal_manifests,
        short_step=6,
        often=(0, 1, 2, 0, 3, 1, 4, 0, 1, 2, 0, 3, 1, 4, 0, 5),
        ways=6,
    ),
    Target(
        "fits",
        0.4,
        prepare_store,
        read_fits,
        cases=FIT_CASES,
        changed="^store/(fits|sites)/",
        often=(0, 1, 3, 0, 1, 4, 2),
        ways=5,
    ),
)
