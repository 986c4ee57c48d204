"""Numbers as people read them: one unit a quantity, chosen by magnitude, thin spaces that hold.

Missing values are a dash; whoever shows one says why beside it.
"""

from __future__ import annotations

from typing import Final

from idlewatt.clock import utc_from_us

THIN: Final = "\u202f"
NOTHING: Final = "\u2013"


def _digits(value: float) -> str:
    """Return three significant digits, never an exponent."""
    size = abs(value)
    places = 0 if size >= 99.95 else 1 if size >= 9.995 else 2
    return f"{value:,.{places}f}".replace(",", THIN)


def power(value_w: float | None) -> str:
    """Return a power: `812 W`, `12.4 kW`, `1.20 MW`."""
    if value_w is None:
        return NOTHING
    if abs(value_w) < 999.5:
        return f"{value_w:.0f}{THIN}W"
    if abs(value_w) < 999_500:
        return f"{_digits(value_w / 1e3)}{THIN}kW"
    return f"{_digits(value_w / 1e6)}{THIN}MW"


def energy(value_kwh: float | None) -> str:
    """Return an energy in kWh, small ones in Wh, large ones in MWh; three significant digits."""
    if value_kwh is None:
        return NOTHING
    if 0 < abs(value_kwh) < 0.0995:
        value_wh = value_kwh * 1e3
        return f"<{THIN}0.01{THIN}Wh" if 0 < value_wh < 0.005 else f"{_digits(value_wh)}{THIN}Wh"
    if abs(value_kwh) >= 9_995:
        return f"{_digits(value_kwh / 1e3)}{THIN}MWh"
    return f"{_digits(value_kwh)}{THIN}kWh" if value_kwh else f"0{THIN}kWh"


def money(value_kwh: float | None, price_per_kwh: float, currency: str) -> str:
    """Return what an energy costs, to the hundredth; a dash where no price is set."""
    if value_kwh is None or price_per_kwh <= 0:
        return NOTHING
    cost = value_kwh * price_per_kwh
    text = (
        f"{cost:,.2f}".replace(",", THIN) if cost < 9_999.5 else f"{cost:,.0f}".replace(",", THIN)
    )
    text = text if cost >= 0.005 or not cost else f"<{THIN}0.01"
    return f"{text}{THIN}{currency}" if currency else text


def share(value: float | None) -> str:
    """Return a ratio as per cent; small ones with a decimal."""
    if value is None:
        return NOTHING
    pct = value * 100
    if 0 < pct < 0.1:
        return f"<{THIN}0.1{THIN}%"
    # Never round up to "all of it".
    if 99.5 <= pct < 100:
        return f"{min(pct, 99.9):.1f}{THIN}%"
    return f"{pct:.1f}{THIN}%" if 0 < pct < 10 else f"{pct:.0f}{THIN}%"


def count(value: int) -> str:
    """Return a whole number, thousands apart."""
    return f"{value:,}".replace(",", THIN)


def plural(value: int, word: str, many: str = "") -> str:
    """Return `1 GPU`, `2 GPUs`."""
    return f"{count(value)} {word if value == 1 else many or word + 's'}"


def duration(value_s: float | None) -> str:
    """Return a length of time: `12 s`, `47 min`, `3 h 05 min`, `2 d 4 h`."""
    if value_s is None:
        return NOTHING
    total = round(value_s)
    if total < 60:
        return f"{total}{THIN}s"
    minutes = total // 60
    if minutes < 60:
        return f"{minutes}{THIN}min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}{THIN}h {minutes:02d}{THIN}min"
    return f"{hours // 24}{THIN}d {hours % 24}{THIN}h"


def gpu_hours(value_ms: float) -> str:
    """Return GPU time: seconds below one minute, minutes below one hour, else hours."""
    hours = value_ms / 3.6e6
    if 0 < value_ms < 59_500:
        return f"{max(value_ms / 1e3, 1):.0f}{THIN}GPU-s"
    return f"{hours * 60:.0f}{THIN}GPU-min" if hours < 1 else f"{_digits(hours)}{THIN}GPU-h"


def clock(value_us: int | None, as_of_us: int | None = None) -> str:
    """Return the UTC time with seconds, with the day where it is not that of `as_of_us`."""
    if value_us is None:
        return NOTHING
    value = utc_from_us(value_us)
    same_day = as_of_us is None or utc_from_us(as_of_us).date() == value.date()
    return f"{value:%H:%M:%S}" if same_day else f"{value:%d %b %H:%M:%S}"


def minute(value_us: int | None, as_of_us: int | None = None) -> str:
    """Return the UTC time to the minute, with the day where it is another one."""
    if value_us is None:
        return NOTHING
    value = utc_from_us(value_us)
    same_day = as_of_us is not None and utc_from_us(as_of_us).date() == value.date()
    return f"{value:%H:%M}" if same_day else f"{value:%d %b %H:%M}"


def day(value_us: int) -> str:
    """Return date and UTC time to the second."""
    return f"{utc_from_us(value_us):%Y-%m-%d %H:%M:%S}"
