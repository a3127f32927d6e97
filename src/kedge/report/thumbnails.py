"""Small pictures of image files that keys name, for the live page."""

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
    """Makes thumbnails of files inside one folder, and of no others."""

    def __init__(self, folder: Path) -> None:
        with needing("thumbnails need", "PIL", install="kedge[report]"):
            import PIL.Image  # noqa: F401
        if not folder.is_dir():
            raise InputError(f"{folder}: {'is a file, a folder is needed' if folder.exists() else 'no such folder'}")
        self._folder = folder.resolve()
        self.of = lru_cache(_KEPT)(self._made)

    def _made(self, key: str) -> bytes | None:
        """The file that a key names as a small PNG; None where there is none, or it is no image."""
        try:
            path = (self._folder / key).resolve()
            # Neither `..` nor an absolute path nor a link leads out of the folder, and a pipe is no file.
            if not (path.is_relative_to(self._folder) and path.is_file()):
                return None
            image = open_image(path)
        except (OSError, ValueError):  # a name too long or with a null byte; an InputError
            return None
        image.thumbnail((_PIXELS, _PIXELS))
        made = BytesIO()
        image.save(made, "PNG")
        return made.getvalue()
