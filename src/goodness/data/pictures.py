"""Decoding image files with Pillow, cautiously: the size is known and capped before a pixel is decoded."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from goodness.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

PIXEL_CAP = 1 << 24  # 4096 x 4096 in one image; beyond it, somebody is mistaken or attacking

# These run or embed other programs' interpreters (Ghostscript, the Windows metafile player).
_UNWANTED = {"EPS", "WMF"}


def pillow() -> Any:
    """The module PIL.Image, or an error that says how to get it."""
    try:
        from PIL import Image
    except ImportError:
        raise DataError(
            "reading image files needs Pillow, which is not installed: pip install 'goodness[images]'"
        ) from None
    return Image


def formats() -> list[str]:
    """The formats that Pillow reads by itself."""
    module = pillow()
    module.init()
    return [name for name in module.ID if name not in _UNWANTED]


@contextlib.contextmanager
def opened(file: Any, allowed: list[str]) -> Iterator[Image.Image]:
    """An image whose header was read and whose size is within the cap; ValueError or OSError otherwise."""
    module = pillow()
    with warnings.catch_warnings():
        # Pillow only warns of a large image, and of odd metadata; the first is refused, the second harmless.
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", module.DecompressionBombWarning)
        try:
            image = module.open(file, formats=allowed)
        except (module.DecompressionBombError, module.DecompressionBombWarning):
            raise ValueError(f"more than {PIXEL_CAP:,} pixels") from None
        except SyntaxError as trouble:  # some of Pillow's readers say "damaged" in this way
            raise ValueError(str(trouble)) from None
        with image:
            if image.width * image.height > PIXEL_CAP:
                raise ValueError(f"{image.width}x{image.height} is more than {PIXEL_CAP:,} pixels")
            yield image
