"""What takes long, the longest first: files, and tests that need no fixture of their file.

It starts first, so that no process still works on it when the others have nothing left, and
``make check`` leaves it out.
"""

SLOW = (
    "slurm",
    "tests/faults/test_local_faults.py::test_runs_that_were_harmed",
    "tests/faults/test_local_faults.py::test_faults_at_the_stores_calls",
    "tests/campaign/test_run_local.py",
    "tests/kernels/test_fmm",
    "tests/docs/test_commands.py",
    "tests/docs/test_notebook.py",
    "tests/docs/test_extending.py::test_an_example",
    "tests/campaign/test_command_line.py",
    "tests/campaign/test_setups.py::test_a_run_that_would_mix",
    "tests/campaign/test_damage.py",
    "tests/faults/test_fuzz.py::test_no_damaged_file",
    "tests/sites/test_clock_contract.py",
    "tests/campaign/test_measure.py",
    "tests/test_report_in_browser.py",
    "tests/faults/test_checker.py",
    "tests/campaign/test_protocol.py",
    "tests/security/",
    "tests/campaign/test_store.py::test_a_compaction_killed",
    "tests/faults/test_durability.py",
    "tests/kernels/test_microbench.py",
    "tests/campaign/test_table.py::test_other_peoples_format",
    "tests/campaign/test_round_trip.py::test_a_simulated_campaign",
    "tests/campaign/test_round_trip.py::test_a_campaign_on_this_machine",
    "tests/analysis/test_drift.py",
    "tests/campaign/test_import.py::test_an_import_killed",
    "tests/analysis/test_figures.py",
    "tests/kernels/test_registry.py",
    "tests/campaign/test_results.py::test_policy_report_and_figures",
    "tests/analysis/test_phase_energy.py::test_the_files",
    "tests/sites/test_meter_contract.py::test_a_writer_replays",
    "tests/campaign/test_shard.py::test_any_slice",
    "tests/analysis/test_pick.py::test_a_pick_that_is_said",
    "tests/campaign/test_timers.py",
    "tests/campaign/test_certificates.py",
    "tests/analysis/test_trace_energy.py::test_every_trace",
    "tests/docs/test_site.py::test_the_site_is_built",
    "tests/campaign/test_extras.py",
    "tests/sites/test_powercap.py::test_a_tree_that_another_process",
    "tests/sites/test_recorded.py::test_rows_are_replayed",
)
EARLY = (*SLOW, "tests/test_code.py")
