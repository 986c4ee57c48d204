"""A GPU driver, GPUs and a cluster that exist only in software.

`standin` answers where ``libnvidia-ml.so`` answers, below the real pynvml; `constant` and `live`
tell it what the devices are doing; `history` makes the same rows in bulk. Only `physics`,
`cluster`, `live` and `history` need numpy.
"""
