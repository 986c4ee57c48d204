"""What `idlewatt analyze FILE` shows, as text and as a page of its own; needs numpy alone.

* ``dashboard.offline.words``  sentences and table cells, shared by both
* ``dashboard.offline.text``   the terminal
* ``dashboard.offline.page``   one HTML file without scripts
* ``dashboard.offline.chart``  its drawings, as SVG
"""
