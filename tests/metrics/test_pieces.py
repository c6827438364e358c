"""Pieces worked on in threads come back in order, and errors come through."""

import threading

import pytest
import torch

from regmixup.metrics.pieces import map_pieces


@pytest.mark.parametrize("threads", [1, 3])
def test_results_keep_their_order(threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    table, used = torch.arange(100).reshape(50, 2), set()

    def work(rows):
        used.add(threading.get_ident())
        return int(table[rows].sum())

    assert list(map_pieces(work, table, 10)) == [10 * 10 * k + 45 for k in range(10)]
    assert (threading.get_ident() in used) == (threads == 1)


def test_an_error_in_a_piece_is_raised(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with pytest.raises(ZeroDivisionError):
        list(map_pieces(lambda rows: 1 // rows.start, torch.zeros(2, 1), 1))
