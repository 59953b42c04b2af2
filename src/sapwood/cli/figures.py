"""Numbers as people read them: seconds, counts, rates and metrics, each in few characters."""

from __future__ import annotations

_COUNT_SUFFIXES = ("", " k", " M", " G", " T", " P")


def seconds(value: float) -> str:
    """Return a duration with three significant digits and its unit.

    Example:
        >>> seconds(0.00042), seconds(1.5), seconds(3725)
        ('420 µs', '1.50 s', '1 h 02 min')
    """
    if value < 0.0009995:
        return f"{value * 1e6:.0f} µs"
    if value < 0.9995:
        return f"{_three_digits(value * 1e3)} ms"
    if value < 100:
        return f"{_three_digits(value)} s"
    minutes = round(value) // 60
    if minutes < 60:
        return f"{minutes} min {round(value) % 60:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def count(value: float) -> str:
    """Return a number of things, or of things per second, with a decimal suffix.

    Example:
        >>> count(950), count(273_280), count(8_123_456)
        ('950', '273 k', '8.12 M')
    """
    power = 0
    scaled = float(value)
    while abs(scaled) >= 999.5 and power < len(_COUNT_SUFFIXES) - 1:
        scaled /= 1000.0
        power += 1
    whole = power == 0 and scaled == int(scaled)
    return (f"{scaled:.0f}" if whole else _three_digits(scaled)) + _COUNT_SUFFIXES[power]


def metric(value: float) -> str:
    """Return a metric of a program with seven significant digits.

    Example:
        >>> metric(3.0), metric(1234567.891), metric(1.5e-9)
        ('3', '1234568', '1.5e-09')
    """
    return f"{value:.7g}"


def _three_digits(value: float) -> str:
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
