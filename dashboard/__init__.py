"""The web app.

* ``dashboard.app``        the shell
* ``dashboard.pages``      layout and callbacks, one module a page
* ``dashboard.views``      pure view models: frames in, dicts out
* ``dashboard.theme``      palettes, graph configuration, limits
* ``dashboard.timeaxis``   the one place that turns UTC into an axis
"""
