"""The warehouse: every second of every GPU, exact, durable, open to SQL.

* ``warehouse.store``      the DuckDB file and its single writer
* ``warehouse.ingest``     batches in, group commit, exactly once
* ``warehouse.segments``   sealed hours as Parquet, and their catalogue
* ``warehouse.queries``    SQL files and the sandboxed query service
* ``warehouse.api``        the HTTP API as a plain ASGI app
"""
