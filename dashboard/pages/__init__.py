"""The pages, in the order of the navigation. A new page is one module and one entry here."""

from __future__ import annotations

from typing import Final

from dashboard.pages import fleet, job, jobs, waste
from dashboard.pages.page import Page

PAGES: Final[tuple[Page, ...]] = (fleet.PAGE, waste.PAGE, jobs.PAGE, job.PAGE)

__all__ = ["PAGES", "Page"]
