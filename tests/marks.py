"""Which tests are slow and which start servers or nodes: in one place, so that a test file need not say it."""

from __future__ import annotations

PROCESSES = {
    "attacks/test_a_neighbour_at_the_executor_port.py",
    "deployment/test_local.py",
    "deployment/test_processes.py",
    "deployment/test_proxy.py",
    "e2e/test_own_study.py",
    "e2e/test_three_hospitals.py",
    "flower/test_ray.py",
    "deployment/test_warm.py",
}
"""Files of tests that start real servers or nodes: marked ``processes``, and run one after the other."""

SLOW = {
    "attacks/test_a_pool_that_never_ends.py::test_an_audit_that_is_stopped_ends_though_a_worker_does_not_hear_it",
    "cli/test_audit.py::test_an_audit_that_is_stopped_ends_with_its_workers",
    "analytics/test_pages.py::test_the_statistics_of_the_page_are_asked",
    "attacks/test_malformed_vectors.py::test_a_malformed_vector_is_a_dropout_of_its_sender",
    "attacks/test_renamed_runs.py::test_a_new_name_for_every_attempt_gives_nothing_beyond_the_limit",
    "attacks/test_lying_server.py::test_no_strategy_gets_more_than_one_sum",
    "cli/test_data.py::test_a_missing_library_is_named_with_its_extra",
    "e2e/test_consortium.py::test_all_ways_to_train_side_by_side",
    "e2e/test_resume.py::test_ctrl_c_leaves_a_resumable_run",
    "e2e/test_resume.py::test_kill_at_every_state_of_the_ledger",
    "e2e/test_resume.py::test_limits_of_clients_outlive_the_process",
    "e2e/test_resume.py::test_privacy_target_stops_evaluates_and_stays_stopped",
    "e2e/test_resume.py::test_workers_end_with_a_killed_parent",
    "e2e/test_resume.py::test_three_and_three_rounds_are_six_bit_for_bit",
    "flower/test_grid.py::test_a_fault_of_one_node_is_a_dropout_and_the_round_completes",
    "flower/test_proofs_on_the_wire.py::test_a_node_without_a_proof_drops_out",
    "flower/test_proofs_on_the_wire.py::test_proven_rounds_give_the_model_of_a_simulation",
    "deployment/test_guard.py::test_the_guard_needs_nothing_else_in_the_path",
    "deployment/test_units.py::test_flowers_programs_know_every_option",
    "privacy/test_ledger_crashes.py::test_killed_runs_never_pay_too_little",
    "secagg/test_exactness.py::test_a_hundred_members_lose_ten_at_any_stage",
    "simulation/test_audit.py::test_planted_defects_are_found_through_whole_rounds",
    "simulation/test_library.py::test_every_scheme_learns",
    "simulation/test_library.py::test_readme_example",
    "simulation/test_pool.py::test_a_pool_ends_at_once_whatever_its_workers_do",
}
"""Tests that take more than 5 seconds, all cases of a test together, on two busy cores: marked ``slow``."""
