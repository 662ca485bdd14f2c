"""The loops of the solvers, compiled: coordinate descent in a working set and at peaks, the relaxed step of ADMM."""

from __future__ import annotations

import numpy as np
from numba import njit

_PASSES = 100  # over the working set between two certificates, at most
_SWEEPS = 10  # over the peaks, at most: lowering one may raise another
_NEGLIGIBLE = 0.3  # steps below this fraction of the accuracy cost more than they gain


@njit(cache=True, nogil=True, fastmath=True)
def improve_blocks(first, last, s, undone, correlation, lam, table, accuracy, limit, large):
    """Lower the objective of blocks ``undone[first:last]`` in place; mark those whose working set is too large."""
    for row in undone[first:last]:
        block, g = s[row], correlation[row]
        chosen = _working_set(block, g, lam)
        if chosen.size > limit:
            large[row] = True
            continue
        gram = np.empty((chosen.size, chosen.size), block.dtype)
        for a in range(chosen.size):
            for b in range(a + 1):
                gram[a, b] = gram[b, a] = table[chosen[a] - chosen[b]] + table[chosen[a] + chosen[b] + 1]
        x, q = block[chosen], g[chosen]
        for _ in range(_PASSES):
            if _descend(gram, x, q, lam, _NEGLIGIBLE * accuracy * lam) <= accuracy * lam:
                break
        block[chosen] = x


@njit(cache=True, nogil=True)
def _working_set(block, g, lam):
    """The support, and the local maxima of |g| above λ."""
    chosen = np.empty(block.size, np.int64)
    count = 0
    for j in range(block.size):
        if block[j] != 0 or _is_peak(g, j, lam):
            chosen[count] = j
            count += 1
    return chosen[:count]


@njit(cache=True, nogil=True)
def _is_peak(g, j, bound):
    a = abs(g[j])
    return a > bound and (j == 0 or a >= abs(g[j - 1])) and (j == g.size - 1 or a >= abs(g[j + 1]))


@njit(cache=True, nogil=True, fastmath=True)
def _descend(gram, x, q, lam, negligible):
    """One pass over all coordinates x with correlations q; returns the largest change of a correlation."""
    largest = lam * 0
    for a in range(x.size):
        row = gram[a]
        z = q[a] + row[a] * x[a]
        step = (z - min(max(z, -lam), lam)) / row[a] - x[a]
        if abs(step) * row[a] > negligible:
            x[a] += step
            for b in range(x.size):
                q[b] -= step * row[b]
            largest = max(largest, abs(step) * row[a])
        if a > 0 and x[a] * x[a - 1] > 0:
            other = gram[a - 1]
            curvature = row[a] + other[a - 1] - 2 * row[a - 1]
            if curvature <= 0:
                continue
            step = (q[a] - q[a - 1]) / curvature
            step = min(max(step, min(-x[a], x[a - 1])), max(-x[a], x[a - 1]))  # neither changes its sign
            if abs(step) * curvature > negligible:
                x[a] += step
                x[a - 1] -= step
                for b in range(x.size):
                    q[b] -= step * (row[b] - other[b])
                largest = max(largest, abs(step) * curvature)
    return largest


@njit(cache=True, nogil=True, fastmath=True)
def lower_peaks(first, last, s, undone, correlation, lam, table, accuracy):
    """Exact steps at peaks of the correlations above (1 + accuracy) λ, in place; all correlations follow."""
    length = s.shape[1]
    both_ways = np.concatenate((table[length - 1 : 0 : -1], table[:length]))
    for row in undone[first:last]:
        x, q = s[row], correlation[row]
        for _ in range(_SWEEPS):
            lowered = False
            for j in range(length):
                if not _is_peak(q, j, (1 + accuracy) * lam):
                    continue
                square = table[0] + table[2 * j + 1]
                z = q[j] + square * x[j]
                step = (z - min(max(z, -lam), lam)) / square - x[j]
                x[j] += step
                of_difference, of_sum = both_ways[length - 1 - j :], table[j + 1 :]
                for i in range(length):
                    q[i] -= step * (of_difference[i] + of_sum[i])
                lowered = True
            if not lowered:
                break


@njit(cache=True, nogil=True, fastmath=True)
def relax_blocks(first, last, x, w, threshold, relaxation):
    """w += relaxation · (x − s) with s the part of w outside ±threshold; then x = s − u of the new w = s + u."""
    for row in range(first, last):
        for j in range(w.shape[1]):
            old = w[row, j]
            new = old + relaxation * (x[row, j] - old + min(max(old, -threshold), threshold))
            w[row, j] = new
            x[row, j] = new - 2 * min(max(new, -threshold), threshold)
