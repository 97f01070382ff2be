import numpy as np
import pytest

from bcnn.packed.fields import from_stream, to_stream
from bcnn.program.bits import pack_bits, unpack_bits


def test_channel_c_is_bit_c_mod_32_of_word_c_div_32():
    for channel in (0, 1, 31, 32, 63, 64):
        bits = np.zeros(65, bool)
        bits[channel] = True
        words = pack_bits(bits)
        assert words.dtype == np.uint32
        assert words.tolist() == [1 << channel % 32 if word == channel // 32 else 0 for word in range(3)]


@pytest.mark.parametrize("channels", [1, 7, 8, 31, 32, 33, 64, 65])
def test_words_and_stream_hold_the_same_bits(channels):
    bits = np.random.default_rng(channels).integers(0, 2, (5, channels)).astype(bool)
    words = pack_bits(bits)
    stream = to_stream(words, channels)
    assert np.array_equal(unpack_bits(words, channels), bits)
    assert stream.nbytes == -(-5 * channels // 8)
    assert [bool(stream[i // 8] >> (i % 8) & 1) for i in range(5 * channels)] == bits.reshape(-1).tolist()
    assert np.array_equal(from_stream(stream, 5, channels), words)


def test_stream_of_whole_words_is_the_words_in_little_endian():
    words = np.array([[0x04030201, 0x08070605]], np.uint32)
    assert to_stream(words, 64).tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_stream_at_an_odd_address_becomes_aligned_words():
    buffer = np.arange(9, dtype=np.uint8)
    words = from_stream(buffer[1:], 1, 64)
    assert words.flags.aligned
    assert words.tolist() == [[0x04030201, 0x08070605]]
