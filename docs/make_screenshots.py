"""Takes the pictures of the README from a running server.

    idlewatt demo                                 # in one terminal, until its history is complete
    python docs/make_screenshots.py               # in another; or with the server's URL

Writes docs/images/fleet-light.png and fleet-dark.png. Needs Chromium and playwright.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any, Final

IMAGES: Final = Path(__file__).resolve().parent / "images"
MAX_BYTES: Final = 300_000
FLAGS: Final = ["--disable-gpu", "--disable-background-networking", "--disable-sync"]
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")


def browser_path() -> str | None:
    """Return the path of the first Chromium there is."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def take(browser: Any, url: str, scheme: str) -> Path:
    """Return the file with the Fleet page in one theme.

    Args:
        browser: a running playwright browser.
        url: address of the page.
        scheme: light or dark.
    """
    context = browser.new_context(
        color_scheme=scheme, viewport={"width": 1280, "height": 800}, reduced_motion="reduce"
    )
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector("#fleet-tile-power", timeout=60_000)
    page.wait_for_selector("#fleet-map .heatmaplayer image", timeout=60_000)
    page.wait_for_selector("#fleet-band .scatterlayer .js-line", timeout=60_000)
    page.wait_for_timeout(3_500)  # one more beat, so that the strip has settled
    path = IMAGES / f"fleet-{scheme}.png"
    page.screenshot(path=str(path), full_page=True)
    context.close()
    return path


def main() -> int:
    """Take both pictures and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:8050")
    parser.add_argument("--window", default="1h", help="15m, 1h, 6h or 24h")
    args = parser.parse_args()
    from playwright.sync_api import sync_playwright

    chromium = browser_path()
    if chromium is None:
        sys.stderr.write("no Chromium found: install Debian's chromium\n")
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        files = [
            take(browser, f"{args.url}/?window={args.window}", one) for one in ("light", "dark")
        ]
        browser.close()
    for path in files:
        size = path.stat().st_size
        sys.stdout.write(f"{path} {size / 1e3:.0f} kB\n")
        if size > MAX_BYTES:
            sys.stderr.write(f"{path} is larger than {MAX_BYTES / 1e3:.0f} kB\n")
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
