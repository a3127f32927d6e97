"""Thumbnails of the image files named by keys, for the live page."""

from __future__ import annotations

from functools import lru_cache
from io import BytesIO
from pathlib import Path

from kedge.errors import InputError
from kedge.extras import needing
from kedge.spaces.encoders.image_files import open_image

_PIXELS = 128
_KEPT = 2000


class Thumbnails:
    """Makes thumbnails of image files inside one folder only."""

    def __init__(self, folder: Path) -> None:
        with needing("thumbnails need", "PIL", install="kedge[report]"):
            import PIL.Image  # noqa: F401
        if not folder.is_dir():
            wrong = "is a file, a folder of images is needed" if folder.exists() else "no such folder"
            raise InputError(f"{folder}: {wrong}")
        self._folder = folder.resolve()
        self.get = lru_cache(_KEPT)(self._make)

    def _make(self, key: str) -> bytes | None:
        """The file named by a key as a small PNG; None if there is no such file or it is not an image."""
        try:
            path = (self._folder / key).resolve()
            # Neither `..`, an absolute path nor a link may lead out of the folder, and a pipe is not a file.
            if not (path.is_relative_to(self._folder) and path.is_file()):
                return None
            image = open_image(path)
        except (OSError, ValueError):  # a name too long or with a null byte; an InputError
            return None
        image.thumbnail((_PIXELS, _PIXELS))
        png = BytesIO()
        image.save(png, "PNG")
        return png.getvalue()
