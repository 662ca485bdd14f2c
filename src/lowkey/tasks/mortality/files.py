"""Reading a source's CSV file, plain or packed, with clear errors about what is wrong with it."""

from __future__ import annotations

import gzip
import hashlib
import os
import zipfile
import zlib
from pathlib import Path

import polars as pl

from lowkey.errors import DataError
from lowkey.tasks.mortality.source import Source

HOME = "LOWKEY_HOSPITAL_DATA"
MISSING = ["", "?", "nan", "NaN"]
OTHER_VERSION = "or accept another version of the data with any_version=True (--any-version)"


def read_table(source: Source, path: Path, *, any_version: bool = False) -> tuple[pl.DataFrame, str]:
    """The needed columns as text, missing values null, and the sha256 of the CSV file.

    Parameters
    ----------
    source : Source
        The data set that the file should hold.
    path : Path
        The CSV file, plain, in a .gz or in a .zip, or a directory that holds one of these. "auto" looks in the
        directory that LOWKEY_HOSPITAL_DATA names, and in a folder there with the source's name.
    any_version : bool
        Accept a file whose checksum is not that of the reference file.
    """
    file = _find(source, path)
    content = _content(source, file)
    _check_header(source, content, file)
    digest = hashlib.sha256(content).hexdigest()
    if digest != source.sha256 and not any_version:
        raise DataError(
            f"{file} is not the reference file of {source.name}: sha256 of its content starts with {digest[:12]}, not "
            f"{source.sha256[:12]}; {source.obtain}, {OTHER_VERSION}"
        )
    try:
        table = pl.read_csv(content, infer_schema=False, null_values=MISSING).select(source.columns)
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{file} is not a valid CSV file ({reason}); {source.obtain}") from error
    if table.is_empty():
        raise DataError(f"{file} has a header but no rows; {source.obtain}")
    return table, digest


def _find(source: Source, path: Path) -> Path:
    if str(path) == "auto":
        return _known(source)
    if path.is_dir():
        found = next((path / name for name in source.files if (path / name).is_file()), None)
        if found is None:
            raise DataError(f"{path} holds none of {', '.join(source.files)}; {source.obtain}")
        return found
    if not path.is_file():
        raise DataError(f"{path} does not exist; {source.obtain}")
    return path


def _known(source: Source) -> Path:
    """The file under the directory of all hospital data."""
    root = os.environ.get(HOME)
    if not root:
        raise DataError(
            f"the file of {source.name} is not known; set data.source to it, or {HOME} to a directory that holds it; "
            f"{source.obtain}"
        )
    folders = [Path(root), Path(root) / source.name, Path(root) / source.name.replace("-", "_")]
    found = next((folder / name for folder in folders for name in source.files if (folder / name).is_file()), None)
    if found is None:
        raise DataError(f"{HOME} is {root}, which holds no {source.files[0]}, plain or packed; {source.obtain}")
    return found


def _content(source: Source, file: Path) -> bytes:
    """The CSV file's bytes, unpacked."""
    try:
        if file.suffix == ".zip":
            with zipfile.ZipFile(file) as archive:
                return archive.read(_member(source, archive))
        content = file.read_bytes()
        return gzip.decompress(content) if file.suffix == ".gz" else content
    except KeyError as error:
        raise DataError(f"{file} has no {source.files[0]} inside; {source.obtain}") from error
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise DataError(f"{file} cannot be read ({error}); {source.obtain}") from error


def _member(source: Source, archive: zipfile.ZipFile) -> str:
    wanted = source.files[0]
    return next((name for name in archive.namelist() if Path(name).name == wanted), wanted)


def _check_header(source: Source, content: bytes, file: Path) -> None:
    """Report missing columns early, and more exactly than a checksum can."""
    header = content.partition(b"\n")[0].decode("utf-8", "replace").strip().removeprefix("\ufeff")
    columns = [name.strip('"') for name in header.split(",")]
    missing = [column for column in source.columns if column not in columns]
    if not missing:
        return
    other = next((mark for mark in (";", "\t", "|") if mark in header), None)
    if len(columns) == 1 and other:
        raise DataError(
            f"{file} separates its columns by {other!r}; they must be separated by ','; convert it, or {source.obtain}"
        )
    raise DataError(
        f"{file} has no column {', '.join(missing[:5])}{' ...' if len(missing) > 5 else ''}; it must have all "
        f"{len(source.columns)} that {source.name} needs; {source.obtain}"
    )
