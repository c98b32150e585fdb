"""Seconds of cores in each SMT state. With `unknown`, which is time that is doubted or that no read
covers, they sum to the time in which the core was on."""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Floats
from perftop.model.cores import Cores
from perftop.model.sample_reader import Sample
from perftop.model.smt import STATES
from perftop.session.session import Session

KNOWN = (*STATES, "unknown")
SLACK = 0.5
"""Share of a sample by which a read may be late. What no read covers beyond that is unknown."""


class CoreTime:
    def __init__(self, session: Session) -> None:
        self._session = session
        self.cores: Cores = session.reader.cores
        self.seconds = np.zeros((len(self.cores.lists), len(KNOWN)))
        """(cores, KNOWN)"""
        self.gone = np.zeros((len(session.hello.packages) + 1, len(KNOWN)))
        """The same of cores that are no longer listed, by package; last: of none."""
        self._owed_s = np.zeros(len(self.cores.lists))
        """Time by core since its last read, in s; later reads have it. Below 0: reads are ahead."""
        self.ceiling_hz: Floats = np.full(len(self.cores.lists), np.nan)
        """What turbo allows each core for certain, in the newest sample."""

    def take(self, sample: Sample, span_s: float) -> None:
        if self.cores is not self._session.reader.cores:
            self._regroup(self._session.reader.cores)
        cores, counters = self.cores, self._session.counters
        self.ceiling_hz = sample.ceilings.hz
        on = cores.total(self._session.online.astype(float)) > 0
        read_s = cores.most(sample.delta.tables["cpu"].ticks) / counters.stamp_hz
        read_s = np.where(on & np.isfinite(read_s), read_s, 0.0)
        self._owed_s = np.where(on, self._owed_s + span_s - read_s, 0.0)
        told = np.isfinite(sample.split.states)
        known = np.where(told, sample.split.states, 0.0) * read_s[:, None]
        self.seconds[:, :-1] += known
        self.seconds[:, -1] += np.where(told.all(axis=1), 0.0, read_s - known.sum(axis=1))
        slack_s = SLACK * self._session.hello.sample_ns / 1e9
        lost = (read_s > 0) & (self._owed_s > slack_s)
        self.seconds[lost, -1] += self._owed_s[lost]
        self._owed_s[lost] = 0.0

    def _regroup(self, now: Cores) -> None:
        """Cores are others than they were. What a core had goes to the one that its CPUs are in."""
        before, seconds, owed_s = self.cores, self.seconds, self._owed_s
        self.cores, count = now, len(now.lists)
        self.seconds, self._owed_s = np.zeros((count, len(KNOWN))), np.zeros(count)
        for old, home in enumerate(now.find(before.lists)):
            if home < 0:
                self.gone[before.package[old]] += seconds[old]
            else:
                self.seconds[home] += seconds[old]
                self._owed_s[home] = owed_s[old]
