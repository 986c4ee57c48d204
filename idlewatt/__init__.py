"""idlewatt finds the watts that do no work in GPU clusters.

Where to look:

* ``idlewatt.model``    identities, states, and the small enumerations all parts share
* ``idlewatt.columns``  the columns of every table that travels from a node to the warehouse
* ``idlewatt.wire``     the batch codec between agent and server
* ``idlewatt.config``   the one table of settings
* ``idlewatt.errors``   the error tree
* ``idlewatt.clock``    system and virtual time
* ``idlewatt.cli``      the command line; composes and injects everything
* ``collector``         on the node: driver reading, spool, shipper; and the simulator
* ``warehouse``         ingest, live store, segments, queries, HTTP API
* ``analysis``          detectors and accounting: pure functions, and the jobs that run them
* ``dashboard``         the web app
"""

__version__ = "0.1.0"
