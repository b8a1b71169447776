"""The cases of a test with several parameters: every pair of values has one (_support/combinations.py)."""

from itertools import combinations, product

from combinations import covering

CASES = [
    {"client": client, "upstream": upstream, "stream": stream, "anyio_backend": backend}
    for client, upstream, stream, backend in product("abc", "abc", (True, False), ("asyncio", "trio"))
]


def test_each_two_values_of_two_parameters_meet() -> None:
    chosen = [CASES[number] for number in covering(CASES, 2)]
    for one, other in combinations(["client", "upstream", "stream"], 2):
        assert {(case[one], case[other]) for case in chosen} == {(case[one], case[other]) for case in CASES}
    assert len(chosen) < 13


def test_both_backends_run_and_add_no_case() -> None:
    one_backend = [case for case in CASES if case["anyio_backend"] == "trio"]
    chosen = [CASES[number] for number in covering(CASES, 2)]
    assert {case["anyio_backend"] for case in chosen} == {"asyncio", "trio"}
    assert len(chosen) <= len(covering(one_backend, 2)) + 1


def test_each_value_runs_once() -> None:
    chosen = [CASES[number] for number in covering(CASES, 1)]
    assert len(chosen) == 3
    for name in CASES[0]:
        assert {case[name] for case in chosen} == {case[name] for case in CASES}


def test_one_parameter_keeps_all_its_values() -> None:
    assert covering([{"anyio_backend": "asyncio"}, {"anyio_backend": "trio"}], 2) == [0, 1]
    assert covering([{"row": number % 2} for number in range(4)], 1) == [0, 1, 2, 3]


def test_each_worker_chooses_the_same_cases_and_each_test_others() -> None:
    assert covering(CASES, 2, "test_one") == covering(CASES, 2, "test_one")
    assert len({tuple(covering(CASES, 2, f"test_{number}")) for number in range(9)}) > 1
