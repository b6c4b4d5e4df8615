"""What a handler of the generation queue returns that made images."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

_FORM: Final = "airunner.images"
_SHA256_CHARACTERS: Final = 64
# The database would refuse others only when the verdict is written.
_TYPES: Final = {"location": str, "content_type": str, "byte_count": int, "sha256": str}


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One image that is stored somewhere: an object of S3, a file, an address."""

    location: str
    """Where it is, in whatever form the application can read."""
    content_type: str
    byte_count: int
    sha256: str
    """Of its content, in 64 hexadecimal digits."""

    def __post_init__(self) -> None:
        """Refuse what describes no image: TypeError for other types, else ValueError."""
        for name, kind in _TYPES.items():
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name} of an image must be of type {kind.__name__}")
        if not self.location or not self.content_type:
            raise ValueError("an image needs a location and a content type")
        if self.byte_count < 0:
            raise ValueError("an image has no negative size")
        if len(self.sha256) != _SHA256_CHARACTERS or not _is_hexadecimal(self.sha256):
            raise ValueError("sha256 must be 64 hexadecimal digits")

    @classmethod
    def of(cls, location: str, content_type: str, content: bytes) -> Image:
        """Describe an image whose content is at hand."""
        digest = hashlib.sha256(content).hexdigest()
        return cls(location=location, content_type=content_type, byte_count=len(content), sha256=digest)


class Images:
    """The images that a handler made, in their order: `return Images([Image.of(...)])`.

    They become rows of the table `images`, in the transaction of the verdict.
    """

    __slots__ = ("_images",)

    def __init__(self, images: Iterable[Image]) -> None:
        self._images = tuple(images)
        if not all(isinstance(image, Image) for image in self._images):
            raise TypeError("Images takes a list of Image")

    def __iter__(self) -> Iterator[Image]:
        return iter(self._images)

    def __len__(self) -> int:
        return len(self._images)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: results travel between processes as JSON."""
        return {_FORM: [asdict(image) for image in self._images]}

    @classmethod
    def from_json(cls, value: object) -> Images | None:
        """Return the images of a JSON form; None for any other value, ValueError for a broken one."""
        if not isinstance(value, dict) or set(value) != {_FORM}:
            return None
        try:
            return cls(Image(**entry) for entry in value[_FORM])
        except TypeError as error:
            raise ValueError(f"these are no images: {error}") from error


def _is_hexadecimal(text: str) -> bool:
    return all(character in "0123456789abcdef" for character in text)
