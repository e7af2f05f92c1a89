"""The guide's table of features, row by row: what it shows exists, and has its tests."""

import re
from pathlib import Path

import pytest

import d2lmgpu as d2l
from d2lmgpu import cli, networks

TESTS = Path(__file__).resolve().parent
GUIDE = (TESTS.parent / "docs" / "guide.md").read_text(encoding="utf-8")
_, TABLE = GUIDE.split("## What other guides and tools offer")
ROWS = re.findall(r"^\| (.*?) \| (.*?) \|$", TABLE.split("\n## ")[0], re.MULTILINE)[1:]  # not the heads

COVERED = {
    "environment and devices": "test_devices.py::test_choosing_devices",
    "the devices there are": "test_devices.py::test_device_table test_cli.py::test_devices",
    "a limit to a device's memory": "test_memory.py::test_one_too_many test_memory.py::test_training_within_a_limit",
    "one minibatch over all replicas": "test_data_parallel.py::test_k_devices_equal_one",
    "minibatches": "test_queue.py::test_each_example_once_an_epoch test_queue.py::test_the_rest_is_dropped",
    "preprocessing": "test_queue.py::test_k_devices_equal_one_with_random_preprocessing",
    "uneven workers": "test_loads.py::test_k_devices_equal_one test_loads.py::test_loads_by_measurement "
    "test_both_kinds.py::test_training",
    "batch norm's statistics combined": "test_batch_norm.py::test_whose_images_the_statistics_are_of",
    "minibatch scaled with the workers": "test_training_options.py::test_scaling_the_batch "
    "test_training_options.py::test_the_rate_of_every_step test_schedules.py::test_what_comes_after_the_warmup",
    "a network split over devices": "test_splits.py::test_a_split_learns_what_the_walk_learns "
    "test_splits.py::test_a_width_that_data_parallelism_does_not_fit",
    "optimisers": "test_optimizers.py::test_against_the_definition",
    "networks from layers": "test_build.py::test_a_network_of_ones_own_in_ten_lines "
    "test_documents.py::test_the_guides_own_network",
    "losses": "test_losses.py::test_against_loops_and_numeric_derivatives test_losses.py::test_k_devices_equal_one "
    "test_own_losses.py::test_numbers_are_learned",
    "metrics": "test_metrics.py::test_k_devices_equal_one_and_a_loop test_metrics.py::test_where_they_are_told",
    "gradients in buckets": "test_overlap.py::test_overlapped_steps_equal_one_device",
    "mixed precision": "test_mixed.py::test_lenet_against_loops test_mixed.py::test_a_step_that_overflows_is_left_out",
    "checkpoints": "test_checkpoints.py::test_killed_at_any_moment "
    "test_checkpoints.py::test_a_resumed_run_equals_an_uninterrupted_one",
    "callbacks, TensorBoard": "test_monitor.py::test_what_is_called_when "
    "test_monitor.py::test_event_files_for_tensorboard",
    "stopping from outside": "test_monitor.py::test_a_callback_ends_training "
    "test_cli.py::test_ctrl_c_reports_what_was_learned test_stop_button.py::test_the_button",
    "predicting": "test_predict.py::test_probabilities_in_the_images_order test_predict.py::test_the_command",
    "images in folders": "test_image_folders.py::test_the_commands",
    "where the time goes": "test_timing.py::test_a_chrome_trace test_monitor.py::test_how_busy_the_devices_were",
    "many networks at a time": "test_sweep.py::test_however_it_is_done_a_history_is_that_of_train "
    "test_sweep.py::test_the_command",
    "one network on a cluster": "test_across.py::test_processes_learn_what_one_learns "
    "test_across.py::test_the_command_under_mpiexec test_cluster_gpus.py::test_processes_of_a_machine_take_its_gpus",
}
"""The tests of each row, by how it begins; the others are said not to be built."""


def begins(row):
    return next((start for start in COVERED if row[0].startswith(start)), None)


def test_every_row_has_its_tests():
    assert [begins(row) for row in ROWS if row[1] != "not built yet"] == list(COVERED)
    for test in " ".join(COVERED.values()).split():
        file, name = test.split("::")
        assert f"def {name}(" in (TESTS / file).read_text(encoding="utf-8"), test


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].split(":")[0])
def test_what_a_row_shows_exists(row, capsys):
    shown = " ".join(re.findall(r"`(.*?)`", row[1]))
    for name in re.findall(r"d2l\.(\w+)", shown):
        assert hasattr(d2l, name)
    for name in re.findall(r"networks\.(\w+)|(\b[A-Z]\w+)\(", shown):
        assert hasattr(networks, "".join(name)) or hasattr(d2l, "".join(name))
    command = (re.findall(r"d2lmgpu (\w+)", shown) or ["train"])[0]
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    usage = capsys.readouterr().out
    for flag in re.findall(r"--[\w-]+", shown):
        assert f"{flag} " in usage or f"{flag}]" in usage, flag
