"""Public feature maps: functions of single rows that need no training data, computed once by every client.

PyTorch and SciPy are imported when a map first needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowkey.features.affine import Centred, Columns, Constant
from lowkey.features.clients import FeaturedClients, features_of, with_features
from lowkey.features.composing import Beside, Chain
from lowkey.features.expansion import Bins, Splines
from lowkey.features.maps import FeatureMap, Shape, digest_of
from lowkey.features.norms import GroupNorm, UnitNorm
from lowkey.features.projection import Hashing, Projection
from lowkey.features.scattering import Scattering
from lowkey.lazy import lazy_names
from lowkey.registry import Registry

if TYPE_CHECKING:
    from lowkey.features.backbone import Backbone

FEATURES: Registry[type[FeatureMap]] = Registry(
    "features.kind",
    {
        "scattering": Scattering,
        "group-norm": GroupNorm,
        "unit-norm": UnitNorm,
        "constant": Constant,
        "centred": Centred,
        "columns": Columns,
        "projection": Projection,
        "hashing": Hashing,
        "splines": Splines,
        "bins": Bins,
    },
)
__getattr__ = lazy_names(__name__, {"backbone": ("Backbone",)})

__all__ = [
    "FEATURES",
    "Backbone",
    "Beside",
    "Bins",
    "Centred",
    "Chain",
    "Columns",
    "Constant",
    "FeatureMap",
    "FeaturedClients",
    "GroupNorm",
    "Hashing",
    "Projection",
    "Scattering",
    "Shape",
    "Splines",
    "UnitNorm",
    "digest_of",
    "features_of",
    "with_features",
]
