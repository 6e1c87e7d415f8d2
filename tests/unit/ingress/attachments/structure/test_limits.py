"""The limits of the design."""

from ingress.attachments.structure import limits


def test_the_limits_are_those_of_the_design() -> None:
    assert (limits.MAX_PAGES, limits.MAX_ENTRIES, limits.MAX_RATIO) == (500, 2_000, 200)
    assert limits.MAX_UNPACKED_BYTES == 120_000_000
    assert (limits.LIMITS.memory_bytes, limits.LIMITS.cpu_s) == (64 * 2**20, 2.0)


def test_a_decoded_image_fits_the_memory() -> None:
    assert limits.LIMITS.memory_bytes > limits.MAX_DECODED_PIXELS * 4
    assert limits.LIMITS.memory_bytes > limits.MAX_DECODED_WEBP_PIXELS * 16
