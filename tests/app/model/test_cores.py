"""Values of CPUs by core and back, where cores are not all alike."""

from __future__ import annotations

import made
import numpy as np

from perftop.model.cores import Cores

NAN = float("nan")


def test_a_core_with_one_thread_and_a_cpu_in_no_core() -> None:
    cores = Cores(made.hello(cores=2, threads=2), [[0, 2], [1]])
    values = np.array([1.0, 2.0, 3.0, 4.0])
    assert cores.threads(values, 9.0).tolist() == [[1, 3], [2, 9]]
    assert cores.total(values).tolist() == [4, 2]
    assert cores.most(values).tolist() == [3, 2]
    np.testing.assert_array_equal(cores.by_cpu(np.array([5.0, 6.0])), [5, 6, 5, NAN])


def test_what_is_unknown_of_a_thread_is_not_counted() -> None:
    cores = Cores(made.hello(cores=2, threads=2), [[0, 2], [1, 3]])
    values = np.array([[1.0, NAN, NAN, NAN], [1.0, 2.0, 3.0, 4.0]])
    assert cores.total(values).tolist() == [[1, 0], [4, 6]]
    np.testing.assert_array_equal(cores.most(values), [[1, NAN], [3, 4]])
    assert cores.by_cpu(values[:, :2])[1].tolist() == [1, 2, 1, 2]
