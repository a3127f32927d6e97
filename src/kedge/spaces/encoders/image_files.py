"""Image files: find them in a folder, read them as RGB."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kedge.errors import InputError
from kedge.spaces.encoders.libraries import FOR_IMAGES, import_library

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = frozenset(
    {".avif", ".bmp", ".gif", ".jp2", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
)


def find_images(folder: str | Path, *, limit: int | None = None) -> list[str]:
    """Relative POSIX paths of all image files under a folder, sorted; hidden files and folders are skipped."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: {'is a file, a folder is needed' if folder.exists() else 'no such folder'}")
    images = [path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file()]
    names = [path.relative_to(folder) for path in images]
    found = sorted(name.as_posix() for name in names if not any(part.startswith(".") for part in name.parts))
    if not found:
        raise InputError(f"{folder}: holds no image file; known suffixes are {' '.join(sorted(SUFFIXES))}")
    for key in found:
        try:
            key.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError(f"{folder}: the file name {key!r} is not valid Unicode; rename the file") from error
    return found[:limit]


def open_image(path: str | Path) -> Image:
    """The first frame of an image file as 8-bit RGB; transparency is dropped.

    Raises
    ------
    InputError
        If the file is not an image, truncated or too large.
    """
    pil = import_library("PIL.Image", "images", install=FOR_IMAGES)
    try:
        with pil.open(path) as image:
            image.load()
            if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
                # 16-bit grey, which Pillow would clip to white instead of scaling it.
                return pil.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
            if image.mode in ("I", "F"):
                raise ValueError(f"pixels of mode {image.mode!r} have no known range")
            if "transparency" in image.info:
                image = image.convert("RGBA")
            return image.convert("RGB")
    except MemoryError:
        raise
    except Exception as error:
        # Each format has its own parser, and each its own way to fail.
        why = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: not a readable image ({why}); repair or remove it, or skip such files") from error
