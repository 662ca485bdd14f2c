"""Model, data and objective of a preset; imports PyTorch, and polars where the data is of hospitals."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lowkey.data import ImageClients, ImageData, dirichlet_shards, iid_shards, load_fashion_mnist
from lowkey.errors import ConfigError
from lowkey.experiments.config import Config, DataConfig, HospitalConfig
from lowkey.learning import (
    CLASSIFICATION,
    MORTALITY,
    ClientDatasets,
    Examples,
    FashionCNN,
    MortalityMLP,
    Objective,
    keras_initialise,
)
from lowkey.rng import generator

if TYPE_CHECKING:
    from lowkey.data.hospital import HospitalData


def model_of(config: Config) -> Any:
    """The network of a preset, with its first weights."""
    if config.data.of_hospitals:
        network: Any = MortalityMLP(len(hospital_data_of(config).feature_names), config.model.width)
    else:
        network = FashionCNN(config.model.filters, config.model.width)
    return keras_initialise(network, generator(config.seed, "initial weights"))


def objective_of(config: Config) -> Objective:
    """What the model of a preset is trained for."""
    return MORTALITY if config.data.of_hospitals else CLASSIFICATION


def client_datasets_of(config: Config) -> ClientDatasets:
    """The data of all clients of a preset."""
    if config.data.of_hospitals:
        from lowkey.data.hospital import HospitalClients

        return HospitalClients(hospital_data_of(config))
    data, rng = _images(config.data), generator(config.seed, "partition")
    if config.data.partition == "dirichlet":
        partition = dirichlet_shards(data.train_labels, config.data.clients, config.data.alpha, rng)
    else:
        partition = iid_shards(len(data.train_labels), config.data.clients, rng)
    return ImageClients(data.train_images, data.train_labels, partition)


def held_out_examples_of(config: Config) -> Examples:
    """The held-out data of a preset."""
    if config.data.of_hospitals:
        data = hospital_data_of(config)
        return data.test, data.test_died.astype("float32")
    return _images(config.data).test()


def hospital_data_of(config: Config) -> HospitalData:
    """Admissions of a preset on hospital data, divided among its clients."""
    if not config.data.of_hospitals:
        raise ConfigError(f"data.name is {config.data.name!r}, which is no hospital data; choose a preset hospital/...")
    return _hospitals(config.data, config.seed)


def _images(data: DataConfig) -> ImageData:
    if data.name != "fashion-mnist":
        raise ConfigError(
            f"data.name is {data.name!r}: the data is brought by an app of its own; run it with Flower "
            "(docs/deployment.md), or simulate it with lowkey.simulate"
        )
    return _loaded(data.source)


@lru_cache(maxsize=1)
def _loaded(source: str) -> ImageData:
    return load_fashion_mnist(source)


@lru_cache(maxsize=1)
def _hospitals(data: DataConfig, seed: int) -> HospitalData:
    from lowkey.data.hospital import Layout, load_admissions, make_hospital_data, make_synthetic_hospital_data

    settings = data.hospital or HospitalConfig()
    virtual = data.partition == "iid"
    layout = Layout(
        kind="virtual" if virtual else "natural",
        clients=data.clients if virtual and not settings.pooled else None,
        min_deaths=settings.min_deaths,
        min_admissions=settings.min_admissions,
        test_share=settings.test_share,
    )
    made: HospitalData
    if data.name == "synthetic-hospitals":
        made = make_synthetic_hospital_data(seed=seed, scale=settings.scale, layout=layout)
    else:
        admissions = load_admissions(
            data.name, data.source, features=settings.features, any_version=settings.any_version
        )
        made = make_hospital_data(admissions, layout, rng=generator(seed, "partition"), min_count=settings.min_count)
    if settings.pooled:
        made = made.pooled()
    if len(made.clients) != data.clients:
        raise ConfigError(
            f"data.clients is {data.clients}, but {data.name} has {len(made.clients)} with these settings; set "
            f"data.clients={len(made.clients)}, or data.partition=iid for any number of virtual hospitals"
        )
    return made
