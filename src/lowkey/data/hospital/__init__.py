"""In-hospital mortality: public admissions and a synthetic stand-in, as sparse features divided among hospitals.

Needs polars and scikit-learn, which no other part of Lowkey does (from a clone:
``pip install -c constraints.txt '.[hospital]'``).
"""

from lowkey.data.hospital.admissions import Admissions
from lowkey.data.hospital.clients import HospitalClients, HospitalData, make_hospital_data
from lowkey.data.hospital.division import Division, Layout, divide
from lowkey.data.hospital.features import FeatureEncoder, SparseRows, fit_features
from lowkey.data.hospital.source import Counts, Feature, Source
from lowkey.data.hospital.sources import SOURCES, SourceCheck, check_source, load_admissions
from lowkey.data.hospital.synthetic import SyntheticHospitalData, bayes_auroc, make_synthetic_hospital_data

__all__ = [
    "SOURCES",
    "Admissions",
    "Counts",
    "Division",
    "Feature",
    "FeatureEncoder",
    "HospitalClients",
    "HospitalData",
    "Layout",
    "Source",
    "SourceCheck",
    "SparseRows",
    "SyntheticHospitalData",
    "bayes_auroc",
    "check_source",
    "divide",
    "fit_features",
    "load_admissions",
    "make_hospital_data",
    "make_synthetic_hospital_data",
]
