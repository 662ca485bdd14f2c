"""A node remembers how large its model is, for the day when its data cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowkey.deployment import SIZES_FILE
from lowkey.errors import DataError
from lowkey.flower.sizes import model_of_app, to_record
from tests.conftest import tiny_config


def unreadable(*_args: object) -> None:
    raise DataError("no data")


def test_the_size_is_remembered_by_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = tiny_config(), tiny_config("demo/fl-std", "model.hidden=9")
    models = [to_record(model_of_app(config, tmp_path)) for config in (small, large)]
    assert int(models[0]["size"]) < int(models[1]["size"])
    monkeypatch.setattr("lowkey.tasks.fashion_mnist.parts.model", unreadable)
    assert [to_record(model_of_app(config, tmp_path)) for config in (small, large)] == models
    with pytest.raises(DataError):
        model_of_app(tiny_config("demo/fl-std", "model.hidden=10"), tmp_path)
    with pytest.raises(DataError):
        model_of_app(small, None)


def test_the_feature_map_is_remembered_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = tiny_config("demo/private")
    features = model_of_app(head, tmp_path).features
    assert features == head.features() != ""
    monkeypatch.setattr("lowkey.tasks.fashion_mnist.maps.features", unreadable)
    assert model_of_app(head, tmp_path).features == features


def test_a_model_that_can_be_made_is_believed(tmp_path: Path) -> None:
    model = model_of_app(tiny_config(), tmp_path)
    shape, file = model.shape, tmp_path / SIZES_FILE
    file.write_text(file.read_text().replace(str(shape.size), "5"))
    assert model_of_app(tiny_config(), tmp_path) == model
    assert str(shape.size) in file.read_text()


@pytest.mark.parametrize(
    "text", ["", "[]", "5", '{"a": "b"}', '{"a": {"size": 5}}', '{"a": Infinity}', "[" * 10_000, "\udce9"]
)
def test_a_damaged_file_is_written_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / SIZES_FILE).write_bytes(text.encode(errors="surrogateescape"))
    shape = model_of_app(tiny_config(), tmp_path).shape
    assert str(shape.size) in (tmp_path / SIZES_FILE).read_text()


def test_a_home_that_cannot_be_written_is_no_harm(tmp_path: Path) -> None:
    (tmp_path / SIZES_FILE).mkdir()
    assert model_of_app(tiny_config(), tmp_path).shape.size > 0
