"""Throw damaged input at all parsers, count what happens, and judge it."""

from __future__ import annotations

import hashlib
import resource
import time
import tracemalloc
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.mutation import Mutator
from tests.fuzz.targets import Target, Undelivered

CORPUS = Path(__file__).parent / "corpus"
MOST_SECONDS = 0.5
"""Of one call, in seconds of processor time: a busy machine is no defect."""

MOST_BYTES = 20_000_000
"""Of memory for one call, beside its input."""

_SAMPLED = 64  # the memory of one call in so many is measured: that takes several times as long
_PORTION = 1000


@dataclass
class Count:
    """What happened to the input of one target."""

    target: Target
    messages: int = 0
    accepted: int = 0
    undelivered: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    peak: int = 0
    findings: list[tuple[str, bytes]] = field(default_factory=list)

    def read(self, data: bytes) -> None:
        """Give one input to the parser, and note what it does."""
        sampled = self.messages % _SAMPLED == 0
        self.messages += 1
        if sampled:
            tracemalloc.start()
        began = time.process_time()
        try:
            self.target.read(data)
            self.accepted += 1
        except self.target.declared:
            pass
        except Undelivered:
            self.undelivered += 1
        except Exception as error:
            self.find(type(error).__name__, data)
        took = time.process_time() - began
        if sampled:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            self.peak = max(self.peak, peak)
            if peak > MOST_BYTES:
                self.find(f"{peak} bytes of memory", data)
            return  # its time is not that of the parser alone
        self.seconds += took
        self.slowest = max(self.slowest, took)
        if took > MOST_SECONDS:
            self.find(f"{took:.2f} seconds", data)

    def find(self, what: str, data: bytes) -> None:
        """Note what must not happen."""
        if len(self.findings) < 20:
            self.findings.append((what, data))


def fuzz(targets: Sequence[Target], messages: int, seed: int) -> list[Count]:
    """Spread so many damaged messages over all targets, by their shares."""
    shares = sum(target.share for target in targets)
    counts = [Count(target) for target in targets]
    for count in counts:
        for data in count.target.seeds:  # as it is: all that is loaded late is loaded now, and not counted
            count.read(data)
            if count.accepted != count.messages:
                count.find("good input is refused", data)
        count.messages = count.accepted = 0
        count.slowest = count.seconds = 0.0
    mutators = [Mutator(target.seeds, seed * 1000 + number) for number, target in enumerate(targets)]
    wanted = [max(1, round(messages * target.share / shares)) for target in targets]
    while any(count.messages < want for count, want in zip(counts, wanted, strict=True)):
        for count, want, mutator in zip(counts, wanted, mutators, strict=True):
            for _ in range(min(_PORTION, want - count.messages)):
                count.read(mutator.next())
    return counts


def peak_memory() -> int:
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def table(counts: Iterable[Count]) -> Iterator[str]:
    """What happened, line by line."""
    counts = list(counts)
    yield f"{'parser':18}{'messages':>10}{'accepted':>10}{'refused':>10}{'slowest':>10}{'memory':>10}{'findings':>10}"
    for count in counts:
        refused = count.messages - count.accepted - len(count.findings)
        yield (
            f"{count.target.name:18}{count.messages:10,}{count.accepted:10,}{refused:10,}"
            f"{count.slowest * 1e3:7.1f} ms{count.peak / 1e3:7,.0f} kB{len(count.findings):10}"
        )
    total = sum(count.messages for count in counts)
    accepted = sum(count.accepted for count in counts)
    undelivered = sum(count.undelivered for count in counts)
    slowest, peak = max(count.slowest for count in counts), max(count.peak for count in counts)
    findings = sum(len(count.findings) for count in counts)
    yield (
        f"{'all':18}{total:10,}{accepted:10,}{total - accepted - findings:10,}{slowest * 1e3:7.1f} ms"
        f"{peak / 1e3:7,.0f} kB{findings:10}"
    )
    yield f"of those refused, {undelivered:,} by Flower's protobuf before they reach Lowkey"


def keep(counts: Iterable[Count], corpus: Path = CORPUS) -> Iterator[str]:
    """Write findings to the corpus, where a test replays them from now on."""
    for count in counts:
        for what, data in count.findings:
            place = corpus / count.target.name.replace(" ", "-").replace("'", "")
            place.mkdir(parents=True, exist_ok=True)
            file = place / hashlib.sha256(data).hexdigest()[:16]
            file.write_bytes(data)
            yield f"{count.target.name}: {what}: {file}"
