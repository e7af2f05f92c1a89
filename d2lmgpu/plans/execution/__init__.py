"""Plans on devices; execute.py is the beginning.

lower.py turns a plan into actions, and modes.py chooses how each stage is computed. In a step (step.py), actions enter
the devices' queues (queues.py), or become messages between processes (across.py). On a device, compute.py and
as_written.py do them, with the values in the device's store (store.py).
"""
