"""The limits on the structure of files fit each other."""

from ingress.attachments.structure import limits


def test_a_decoded_image_fits_the_memory() -> None:
    assert limits.LIMITS.memory_bytes > limits.MAX_DECODED_PIXELS * 4
    assert limits.LIMITS.memory_bytes > limits.MAX_DECODED_WEBP_PIXELS * 16
