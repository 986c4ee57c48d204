"""On the node: read the GPUs each second, keep the samples safe, ship them.

* ``collector.nvml``       the driver through pynvml: probe, inventory, one reading of all GPUs
* ``collector.agent``      the 1 Hz loop (poller) and its supervisor
* ``collector.spool``      SQLite: every sample is on disk before it is sent
* ``collector.shipper``    batches, lanes, retries
* ``collector.simulator``  a driver stand-in, physics, and a cluster with its ground truth
"""
