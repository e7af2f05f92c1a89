"""Rows that are shown by larger tests in other files."""

from .rows import article, guide, japanese, loops, others, textbook

ACROSS, CLI = "test_across.py::test_", "test_cli.py::test_"
CLUSTER_GPUS, SWEEP = "test_cluster_gpus.py::test_", "test_sweep.py::test_"
HISTORIES = SWEEP + "however_it_is_done_a_history_is_that_of_train"
THREE_CARDS = "test_checkup.py::test_three_cards_of_which_two_reach_each_other"

guide("on a cluster with GPUs, only the GPUs compute", by=CLUSTER_GPUS + "processes_of_a_machine_take_its_gpus")
guide("each worker has a different GPU", by="test_cards.py::test_each_process_takes_cards_of_its_own")
guide("scale up to more machines", by="test_hosts.py::test_hosts_learn_what_one_process_learns")
guide("find out which GPUs are", "fast wires between GPUs", "GPUs without a direct connection", by=THREE_CARDS)
guide("classify on several GPUs", by="test_image_folders.py::test_the_commands")
guide("without GPUs, all CPU workers", by=ACROSS + "the_command_under_mpiexec")
guide("train several networks at the same time", "a loop with parallel iterations", by=HISTORIES)
guide("a worker for each GPU", by=SWEEP + "a_worker_has_a_gpu_of_its_own")
guide("train each of these networks on a GPU", by=SWEEP + "each_on_all_devices")
guide("fast wires between machines", by="test_nccl.py::test_training")
guide("pictures in folders", by="test_image_folders.py::test_pictures_to_train_on_and_to_test")

japanese("find which release", by="test_gpu_rules.py::test_a_card_too_old_is_told_what_to_install")

loops("on a cluster, a worker for each GPU", by="test_cards.py::test_each_process_takes_cards_of_its_own")
loops("choose particular GPUs", by="test_devices.py::test_choosing_devices")
loops("partition a data set", by=ACROSS + "shards_of_a_process")
loops("a plot of the progress", by="test_live_plot.py::test_what_is_seen_while_training_runs")
loops("press that button", by="test_live_plot.py::test_stop_ends_training_within_a_step")
loops("progress in per cent", by="test_monitor.py::test_what_is_told_where_there_is_no_terminal")
loops("the progress of all workers", by=ACROSS + "the_command_under_mpiexec")
loops("the same on a remote cluster", by=SWEEP + "executors_of_other_packages")
loops("leave out some of the GPUs", by=SWEEP + "a_worker_has_a_gpu_of_its_own")
loops("change parameters or the network", "an experiment whose trials", "a single trial", by=HISTORIES)
loops("all trained networks", by=SWEEP + "models_that_are_kept")
loops("a training plot of each trial", by=SWEEP + "trials_that_diverge_or_fail_leave_the_others")

article("install it with pip", by="test_packages.py::test_an_installed_wheel_works_without_network")
article("a data set that comes with", by="test_fashion_mnist.py::test_the_data_set")
article("MNIST itself", by="test_idx.py::test_a_data_set")
article("loss and accuracy in TensorBoard", by="test_monitor.py::test_event_files_for_tensorboard")
article("histograms of the weights", by="test_monitor.py::test_histograms_for_tensorboard")
article("watch the GPUs' use", by=CLI + "devices")
article("find out how fast each GPU is", by="test_loads.py::test_loads_by_measurement")
article("profile the run", by=CLI + "a_trace_of_training")

textbook("names that the chapter uses", by="test_chapter.py::test_each_cell_runs_or_says_what_to_type")
textbook("devices work at the same time", by="test_devices.py::test_devices_work_at_the_same_time")

others("a copy of the network", by="test_train_batch.py::test_k_devices_equal_one")
others("different examples for each process", by=ACROSS + "shards_of_a_process")
others("checkpoints, and resuming", by="test_checkpoints.py::test_a_resumed_run_equals_an_uninterrupted_one")
others("the best model of a run", by="test_best.py::test_the_best_model_is_kept")
others("start from a trained model", by="test_start.py::test_another_head")
others("copies and pickles", by="test_pickles.py::test_a_copy_is_made_on_the_device")
others("stop when accuracy no longer", by="test_monitor.py::test_a_callback_ends_training")
others("pictures in folders", by="test_image_folders.py::test_pictures_to_train_on_and_to_test")
others("where the time goes", by=CLI + "a_trace_of_training")
others("a GPU and a CPU", by="test_both_kinds.py::test_training")
others("weight decay", by="test_optimizers.py::test_against_the_definition")
