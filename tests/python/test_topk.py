"""The k largest of rows, beside numpy's stable sort."""

import ml_dtypes
import numpy
import pytest

import tessera


def places(scores, k, length, largest_index=False):
    """Of one row, by ascending index."""
    x = scores[:length].astype(numpy.float64)
    order = numpy.argsort(-x, kind="stable") if not largest_index else length - 1 - numpy.argsort(-x[::-1], kind="stable")
    return numpy.sort(order[:k])


@pytest.mark.parametrize("dtype, largest_index", [(numpy.float32, False), (ml_dtypes.bfloat16, True)])
def test_indices_and_values(random, dtype, largest_index):
    scores = random.standard_normal((5, 333)).astype(numpy.float32).round(1).astype(dtype)  # equals at the k-th place
    lengths = numpy.array([333, 40, 7, 0, 200], numpy.int32)
    made = tessera.topk(scores, 40, lengths=lengths, largest_index=largest_index, values=True, device="emulator")
    indices, values = numpy.asarray(made["indices"]), numpy.asarray(made["values"])
    for row, length in enumerate(lengths):
        expected = places(scores[row], 40, length, largest_index)
        assert (indices[row, : len(expected)] == expected).all() and (indices[row, len(expected) :] == -1).all()
        assert (values[row, : len(expected)] == scores[row, expected]).all()
        assert numpy.isneginf(values[row, len(expected) :].astype(numpy.float32)).all()


def test_pages_and_an_order_by_value(random):
    scores = random.standard_normal((3, 256)).astype(numpy.float32)
    table = random.permutation(40).astype(numpy.int32)[:32].reshape(2, 16)
    sequences = numpy.array([1, 0, 1], numpy.int32)
    made = tessera.topk(scores, 9, block_table=table, page_size=16, row_sequences=sequences, order="value", device="emulator")
    for row in range(3):
        best = numpy.argsort(-scores[row], kind="stable")[:9]
        assert (numpy.asarray(made["indices"])[row] == table[sequences[row], best // 16] * 16 + best % 16).all()
    table = random.permutation(50).astype(numpy.int32)[:48].reshape(3, 16)  # without a list row i has the table's row i
    made = tessera.topk(scores, 9, block_table=table, page_size=16, device="emulator")
    for row in range(3):
        best = places(scores[row], 9, 256)
        assert (numpy.asarray(made["indices"])[row] == table[row, best // 16] * 16 + best % 16).all()
    starts, offsets = numpy.array([3, 100, 250], numpy.int32), numpy.array([0, 1000, 2000], numpy.int32)
    lengths = numpy.array([50, 156, 6], numpy.int32)
    made = tessera.topk(scores, 9, lengths=lengths, row_starts=starts, offsets=offsets, device="emulator")
    for row in range(3):
        expected = offsets[row] + places(scores[row, starts[row] :], 9, lengths[row])
        assert (numpy.asarray(made["indices"])[row, : len(expected)] == expected).all()


def test_more_than_there_are_kernels_for(random):
    with pytest.raises(tessera.UnsupportedError, match="k 4,096: 1 to 2,048"):
        tessera.topk(random.standard_normal((2, 5000)).astype(numpy.float32), 4096, device="emulator")


def test_guesses_change_no_index(random):
    scores = random.standard_normal((4, 3000)).astype(numpy.float32)
    kth = -numpy.sort(-scores, axis=-1)[:, 49]
    guesses = numpy.array([kth[0], kth[1] - 0.2, kth[2] + 1, numpy.nan], numpy.float32)
    made = tessera.topk(scores, 50, guesses=guesses, device="emulator")
    assert (numpy.asarray(made["indices"]) == numpy.stack([places(row, 50, 3000) for row in scores])).all()
    assert (numpy.asarray(made["kth"]) == kth).all()
