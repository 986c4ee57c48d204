"""Writes `docs/configuration.md` from the settings table; a test holds the two together."""

from __future__ import annotations

from pathlib import Path

from idlewatt.config import SETTINGS, Setting

INTRO = """# Configuration

Every setting has a default. A TOML file overrides it, the environment overrides the file, a flag
overrides all: `--set section.key=value` works with every verb. The file is named by
`--config FILE` or by `IDLEWATT_CONFIG`. A name that is not listed here refuses to start, and
the message names the nearest that is.

```toml
[server]
port = 8050
data_dir = "/var/lib/idlewatt"
```

`idlewatt config show` prints each value and where it came from.

| setting | type | default | unit | what |
|---|---|---|---|---|
"""


def page() -> str:
    """Return the text of the page."""
    return INTRO + "".join(_line(setting) for setting in SETTINGS)


def _line(setting: Setting) -> str:
    default = f"`{setting.default}`" if setting.default != "" else ""
    text = setting.help + (f" ({', '.join(setting.choices)})" if setting.choices else "")
    return f"| `{setting.name}` | {setting.type.__name__} | {default} | {setting.unit} | {text} |\n"


if __name__ == "__main__":
    Path(__file__).with_name("configuration.md").write_text(page(), "utf-8")
