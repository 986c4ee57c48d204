"""Detectors and accounting: pure functions over arrays, and the jobs that run them.

* ``analysis.power_states``  what each GPU was doing, second by second
* ``analysis.schedule``      when analyses run, and over which hours
"""
