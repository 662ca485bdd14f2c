"""SYNTHETIC admissions at the scale of the paper's private database: invented data, to test size and speed.

Every number here is made up, except the paper's counts: 1,271,733 admissions to 415 hospitals, 7,280 features, about
3.1 % deaths. Age, gender, admission type, a medication score and drugs are drawn at random; drugs have a heavy tail
(Zipf), a patient gets a handful, and each hospital favours some of its own. A planted logistic model gives everyone a
probability of death, so that the AUROC of the best possible predictor is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import brentq
from scipy.special import expit

from lowkey import checks
from lowkey.analytics import Columns
from lowkey.rng import generator
from lowkey.tabular import Limits, SparseRows, joined
from lowkey.tasks.mortality.clients import HospitalData, objects
from lowkey.tasks.mortality.division import Labels, Layout, divide
from lowkey.tasks.mortality.features import Rows

ADMISSIONS, HOSPITALS, FEATURES, MORTALITY = 1_271_733, 415, 7_280, 0.0314
_PLAIN = ("age", "mrci", "gender=male", "gender=female", "gender=unknown")
_PUBLIC = {"age": Limits(15, 89), "mrci": Limits(2, 60)}
_ADMISSION = ("emergency", "urgent", "trauma center", "unknown")
_FIRST_DRUG = len(_PLAIN) + len(_ADMISSION)
_DRUGS = FEATURES - _FIRST_DRUG
_BLOCK = 50_000


@dataclass(frozen=True, kw_only=True)
class SyntheticHospitalData(HospitalData):
    """Synthetic data, with the best AUROC that anyone can reach on its test rows."""

    bayes_auroc: float

    def summary(self) -> dict[str, float]:
        return {**super().summary(), "bayes_auroc": round(self.bayes_auroc, 4)}


@dataclass(frozen=True)
class _SyntheticWorld:
    """What all blocks have in common: sizes of hospitals, popularity of drugs, the planted model."""

    hospital_ends: NDArray[np.float64] = field(repr=False)
    favourites: NDArray[np.int64] = field(repr=False)
    drug_ends: NDArray[np.float64] = field(repr=False)
    weights: NDArray[np.float64] = field(repr=False)
    intercept: float = 0.0


@dataclass(frozen=True)
class _SyntheticBlock:
    features: SparseRows = field(repr=False)
    hospitals: NDArray[np.int64] = field(repr=False)
    risk: NDArray[np.float64] = field(repr=False)
    """Probability of death."""
    died: Labels = field(repr=False)


def make_synthetic_hospital_data(
    *,
    seed: int = 0,
    scale: float = 1.0,
    layout: Layout | None = None,
    public: bool = False,
    limits: Mapping[str, Limits] | None = None,
) -> SyntheticHospitalData:
    """Draw synthetic admissions block by block and divide them among clients.

    Parameters
    ----------
    seed : int
        Decides every random draw.
    scale : float
        Fraction of the paper's 1,271,733 admissions and 415 hospitals; there are 7,280 features at any scale.
    layout : Layout or None
        None is the paper's layout: random virtual hospitals of 203 admissions, 5,011 of them at scale 1; "natural"
        gives the 415.
    public : bool
        Whether columns are weighted in blocks as :mod:`lowkey.tabular` does, with a constant.
    limits : mapping of str to Limits, or None
        With ``public``, limits of "age" and "mrci" in place of the public ones.
    """
    checks.positive("scale", scale)
    count, hospitals = max(1, round(ADMISSIONS * scale)), max(1, round(HOSPITALS * scale))
    world = _world(hospitals, generator(seed, "synthetic world"))
    blocks = list(_blocks(world, count, seed))
    features = sparse.csr_array(sparse.vstack([block.features for block in blocks], "csr"))
    died, risk, hospital = (
        np.concatenate([getattr(block, part) for block in blocks]) for part in ("died", "risk", "hospitals")
    )
    del blocks
    names, numbers = synthetic_feature_names(), features[:, :2].toarray()
    if public:
        features, names = _weighted(features, limits or {})
    division = divide(died, layout or Layout(), rng=generator(seed, "synthetic division"), hospitals=hospital)
    train = features[division.train]
    return SyntheticHospitalData(
        source=f"synthetic (scale {scale:g})",
        feature_names=names,
        train=train,
        train_died=died[division.train],
        clients=division.clients,
        test=features[division.test],
        test_died=died[division.test],
        held_out=division.held_out,
        raw=partial(_raw_columns, train, numbers[division.train]),
        excluded_hospitals=division.excluded_hospitals,
        excluded_admissions=division.excluded_admissions,
        bayes_auroc=bayes_auroc(risk[division.test]),
    )


def synthetic_feature_names() -> tuple[str, ...]:
    """Names of the 7,280 columns, all of which say that they are synthetic."""
    drugs = (f"drug={number}" for number in range(_DRUGS))
    return tuple(f"synthetic {name}" for name in (*_PLAIN, *(f"admission_type={a}" for a in _ADMISSION), *drugs))


def _raw_columns(train: SparseRows, numbers: NDArray[np.float32], rows: Rows) -> Columns:
    """What the features of these rows were made of, from features of either encoding and numbers from 0 to 1."""
    features = train[rows]
    plain = features[:, :_FIRST_DRUG].toarray()
    gender, admission = plain[:, 2 : len(_PLAIN)], plain[:, len(_PLAIN) :]
    codes = features[:, _FIRST_DRUG:FEATURES]
    return {
        **{
            name: np.rint(public.low + (public.high - public.low) * numbers[rows, place].astype(np.float64))
            for place, (name, public) in enumerate(_PUBLIC.items())
        },
        "gender": objects(("male", "female", None))[gender.argmax(1)],
        "admission_type": objects((*_ADMISSION[:-1], None))[admission.argmax(1)],
        "drug": objects(tuple(map(str, row)) for row in np.split(codes.indices, codes.indptr[1:-1])),
    }


def _weighted(features: SparseRows, limits: Mapping[str, Limits]) -> tuple[SparseRows, tuple[str, ...]]:
    """The same admissions by public rules: numbers from −1 to 1, and drugs of norm 1 together."""
    numbers, gender = features[:, :2].toarray(), features[:, 2 : len(_PLAIN)]
    for place, (name, public) in enumerate(_PUBLIC.items()):
        found, width = limits.get(name, public), public.high - public.low
        low, high = (found.low - public.low) / width, (found.high - public.low) / width
        numbers[:, place] = np.clip(2 * (numbers[:, place] - low) / (high - low) - 1, -1, 1)
    admission, drugs = features[:, len(_PLAIN) : _FIRST_DRUG], features[:, _FIRST_DRUG:]
    norms = np.sqrt(np.maximum(np.diff(drugs.indptr), 1)).astype(np.float32)
    return joined(
        [
            ("synthetic age", sparse.csr_array(numbers[:, :1]), 2),
            ("synthetic mrci", sparse.csr_array(numbers[:, 1:]), 2),
            ("synthetic gender", gender, gender.shape[1]),
            ("synthetic admission_type", admission, admission.shape[1]),
            ("synthetic drug", sparse.csr_array(drugs.multiply(1 / norms[:, None])), _DRUGS),
        ],
        features.shape[0],
    )


def bayes_auroc(risk: NDArray[np.float64]) -> float:
    """AUROC of ranking by the true probabilities of death, exactly, in expectation over the outcomes.

    Person i with probability p_i died, person j survived and i is ranked above j, with ties half:
    Σ p_i (1 − p_j) ([p_i > p_j] + ½ [p_i = p_j]) / Σ p_i (1 − p_j), both sums over all pairs i ≠ j.
    """
    values, counts = np.unique(risk, return_counts=True)
    deaths, survivors = values * counts, (1 - values) * counts
    below = np.cumsum(survivors) - survivors
    nobody_twice = np.sum(counts * values * (1 - values))  # pairs of a person with itself
    ranked = np.sum(deaths * (below + survivors / 2)) - nobody_twice / 2
    return float(ranked / (deaths.sum() * survivors.sum() - nobody_twice))


def _world(hospitals: int, rng: np.random.Generator) -> _SyntheticWorld:
    sizes = rng.lognormal(0.0, 1.0, hospitals)
    popularity = 1.0 / np.arange(1, _DRUGS + 1)
    weights = np.zeros(FEATURES)
    weights[:_FIRST_DRUG] = (3.0, 2.0, 0.1, 0.0, 0.0, 0.5, 0.0, 0.8, 0.0)
    weights[_FIRST_DRUG:] = 0.3 * rng.choice((-1, 1), _DRUGS)
    weights[_FIRST_DRUG : _FIRST_DRUG + 300] *= 2  # what is common tells more, so that it can be learned
    world = _SyntheticWorld(
        hospital_ends=np.cumsum(sizes / sizes.sum()),
        favourites=rng.integers(_DRUGS, size=hospitals),
        drug_ends=np.cumsum(popularity / popularity.sum()),
        weights=weights,
    )
    pilot, _ = _draw(world, _BLOCK, rng)
    scores = np.asarray(pilot @ weights)
    intercept = brentq(lambda b: float(expit(scores + b).mean()) - MORTALITY, -30.0, 10.0)
    return replace(world, intercept=float(intercept))


def _blocks(world: _SyntheticWorld, count: int, seed: int) -> Iterator[_SyntheticBlock]:
    for start in range(0, count, _BLOCK):
        rng = generator(seed, "synthetic block", start)
        features, hospitals = _draw(world, min(_BLOCK, count - start), rng)
        risk = expit(np.asarray(features @ world.weights) + world.intercept)
        yield _SyntheticBlock(features, hospitals, risk, rng.random(len(risk)) < risk)


def _draw(world: _SyntheticWorld, count: int, rng: np.random.Generator) -> tuple[SparseRows, NDArray[np.int64]]:
    """Features and hospitals of some patients."""
    hospitals = np.searchsorted(world.hospital_ends[:-1], rng.random(count), side="right")
    prescribed = np.minimum(1 + rng.negative_binomial(1.5, 0.15, count), 60)  # 9.5 on average
    row = np.repeat(np.arange(count), prescribed)
    drug = np.searchsorted(world.drug_ends[:-1], rng.random(len(row)), side="right")
    own = rng.random(len(row)) < 0.2
    drug[own] = (drug[own] + world.favourites[hospitals[row[own]]]) % _DRUGS
    pairs = np.unique(row * _DRUGS + drug)  # nobody gets a drug twice
    row, drug = np.divmod(pairs, _DRUGS)
    age = np.clip(np.rint(rng.normal(62.0, 18.0, count)), 15, 89)
    mrci = np.clip(np.rint(1.5 * np.bincount(row, minlength=count) + rng.normal(4.0, 3.0, count)), 2, 60)
    gender = 2 + rng.choice(3, count, p=(0.46, 0.535, 0.005))
    admission = len(_PLAIN) + rng.choice(4, count, p=(0.72, 0.24, 0.01, 0.03))
    everyone, ones = np.arange(count), np.ones(len(row))
    parts = [
        (everyone, np.full(count, 0), (age - 15) / 74),
        (everyone, np.full(count, 1), (mrci - 2) / 58),
        (everyone, gender, ones[:count]),
        (everyone, admission, ones[:count]),
        (row, _FIRST_DRUG + drug, ones),
    ]
    rows, columns, values = (np.concatenate(part) for part in zip(*parts, strict=True))
    place = (rows.astype(np.int32), columns.astype(np.int32))
    table = sparse.coo_array((values.astype(np.float32), place), shape=(count, FEATURES))
    return sparse.csr_array(table), hospitals
