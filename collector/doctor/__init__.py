"""What this machine can do for idlewatt.

* ``facts``   what was found, as plain values
* ``checks``  from facts to findings: pure
* ``driver``  asks the driver; runs in a child process, because a driver may hang
* ``host``    asks the machine: packages, rights, spool, clock, limits
* ``server``  asks the server

Nothing here changes a setting. The spool's folder is written to with one small file, which is
removed again.
"""
