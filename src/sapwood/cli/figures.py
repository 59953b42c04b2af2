"""Numbers as people read them: seconds, counts, rates and sizes, each in few characters."""

from __future__ import annotations

_COUNT_SUFFIXES = ("", " k", " M", " G", " T", " P")
_SIZE_SUFFIXES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


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
    return _scaled(value, 1000.0, _COUNT_SUFFIXES, "")


def size(value: float) -> str:
    """Return a number of bytes with a binary suffix.

    Example:
        >>> size(512), size(3 * 1024**2)
        ('512 B', '3.00 MiB')
    """
    return _scaled(value, 1024.0, _SIZE_SUFFIXES, " ")


def metric(value: float) -> str:
    """Return a metric of a program with seven significant digits.

    Example:
        >>> metric(3.0), metric(1234567.891), metric(1.5e-9)
        ('3', '1234568', '1.5e-09')
    """
    return f"{value:.7g}"


def _scaled(value: float, base: float, suffixes: tuple[str, ...], gap: str) -> str:
    power = 0
    scaled = float(value)
    while abs(scaled) >= 999.5 and power < len(suffixes) - 1:
        scaled /= base
        power += 1
    whole = power == 0 and scaled == int(scaled)
    return f"{f'{scaled:.0f}' if whole else _three_digits(scaled)}{gap}{suffixes[power]}"


def _three_digits(value: float) -> str:
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
