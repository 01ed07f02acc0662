"""Text of `dgbench ranks`: losses and seconds of epochs, and bytes of hosts."""

from __future__ import annotations

from typing import Any

from dgbench.harness.terminal.text import listing


def summary(found: dict[str, Any], width: int) -> str:
    """Lines on a training that ranks have ended.

    Args:
        found: the system, the data in words, and the report of the ranks.
        width: columns to write to.
    """
    report = found["report"]
    ranks, hosts = len(report.exchanged), report.hosts
    first = report.first_epoch
    lines = [
        f"{found['system']} on {found['data']}",
        f"{_count(ranks, 'rank')} on {_count(len(hosts), 'host')}, rows through {report.carrier}",
    ]
    if first:
        lines.append(f"epochs before {first + 1} were kept by an earlier start")
    seconds = ["kept"] * first + [f"{one:.3f}" for one in report.seconds]
    rows = [
        [str(number), f"{loss:.6f}", spent]
        for number, (loss, spent) in enumerate(zip(report.losses, seconds, strict=False), 1)
    ]
    lines += ["", listing(["epoch", "loss", "seconds"], rows, width, {0, 1, 2}), ""]
    rows = [
        [
            host.address,
            host.interface,
            _numbers(host.ranks),
            f"{_to_others(report.exchanged, host.ranks):,}",
            f"{host.sent_bytes:,}",
        ]
        for host in hosts
    ]
    header = ["host", "interface", "ranks", "bytes to other hosts", "bytes on its interface"]
    lines.append(listing(header, rows, width, {3, 4}))
    lines.append("")
    total = sum(map(sum, report.exchanged))
    lines.append(
        f"{total:,} bytes between ranks, counted over {_count(len(seconds) - first, 'epoch')}"
    )
    lines += [f"note: {note}" for note in report.notes]
    return "\n".join(lines)


def _to_others(exchanged: list[list[int]], ranks: list[int]) -> int:
    """Bytes that the ranks of a host sent to those of others."""
    return sum(
        bytes_ for rank in ranks for to, bytes_ in enumerate(exchanged[rank]) if to not in ranks
    )


def _numbers(ranks: list[int]) -> str:
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
