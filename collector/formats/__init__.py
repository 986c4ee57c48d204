"""Files of other tools, as rows: pure functions from bytes to value objects.

`read` takes files and gives an `Import`: rows of the warehouse's tables, and a report of what was
understood, what was not, and what the files show. Nothing here opens a file or a connection.
"""

from __future__ import annotations

from collector.formats.importing import Import, Options, Source, read
from collector.formats.model import Finding, Format, FormatError, Skipped
from collector.formats.recognise import recognise

__all__ = [
    "Finding",
    "Format",
    "FormatError",
    "Import",
    "Options",
    "Skipped",
    "Source",
    "read",
    "recognise",
]
