"""How scores by words and by vectors become one order."""

import numpy as np
import pytest

from tables import each_row
from toolkiln.search.ranking import best, certainty, ranked


def order(lexical: list[list[float]], semantic: list[list[float]] | None = None) -> list[int]:
    by_words = np.array(lexical, np.float32)
    by_vectors = None if semantic is None else np.array(semantic, np.float32)
    names = np.zeros(by_words.shape[1], np.float32)
    return [place.column for place in ranked(by_words, by_vectors, names, 10)]


def test_what_answers_one_clause_best_goes_before_what_answers_none_well() -> None:
    whole = [10.0, 7.0, 6.0]

    assert order([whole]) == [0, 1, 2]
    assert order([whole, [10, 5, 0], [0, 2, 6]]) == [0, 2, 1]


def test_a_second_answer_to_a_clause_is_worth_less_than_the_first_to_another() -> None:
    whole, other = [10.0, 7.0, 6.0], [0.0, 0.0, 6.0]

    assert order([whole, [10, 9, 0], other]) == [0, 2, 1]
    assert order([whole, [8, 9, 0], other])[0] == 0


def test_vectors_count_more_where_words_say_little() -> None:
    nearness = [[0.1, 0.8]]

    assert order([[3.0, 2.0]], nearness) == [1, 0]
    assert order([[30.0, 20.0]], nearness) == [0, 1]


def test_a_negative_similarity_counts_as_zero() -> None:
    assert order([[2.0, 2.0]], [[-0.9, 0.0]]) == [0, 1]


def test_what_scores_nothing_is_not_ranked() -> None:
    assert order([[0.0, 1.0, 0.0]]) == [1]
    assert order([[0.0, 1.0], [0.0, 1.0], [0.0, 0.0]]) == [1]


def test_parts_add_up_to_one_for_what_is_best_at_everything() -> None:
    lexical, semantic = np.full((3, 1), 5, np.float32), np.full((3, 1), 0.5, np.float32)

    (place,) = ranked(lexical, semantic, np.zeros(1, np.float32), 1)

    total = place.lexical + place.semantic + place.clause + place.name
    assert total == pytest.approx(1, abs=1e-5)


def test_many_clauses_do_not_keep_documents_from_being_ranked() -> None:
    lexical = np.random.default_rng(1).random((9, 200)).astype(np.float32)

    columns = [place.column for place in ranked(lexical, None, np.zeros(200, np.float32), 150)]

    assert len(columns) == len(set(columns)) == 150


@each_row("count", [1, 2, 3, 7, 50])
def test_the_best_are_those_that_sorting_finds_and_lots_decide_among_equals(count: int) -> None:
    scores = np.array([0.5, 0, 3, 1, 3, 0, 2, 1, 0.01, 1], np.float32)
    lots = np.array([5, 9, 8, 1, 2, 0, 7, 6, 4, 3], np.uint64)
    ordered = sorted(np.flatnonzero(scores).tolist(), key=lambda at: (-scores[at], lots[at]))

    assert sorted(best(scores, count, lots)) == sorted(ordered[:count])


def test_ten_thousand_equals_are_not_all_looked_at() -> None:
    lots = np.random.default_rng(1).permutation(10_000).astype(np.uint64)

    found = best(np.ones(10_000, np.float32), 100, lots)

    assert sorted(lots[found].tolist()) == list(range(100))


@each_row("count", [1, 4, 1_000])
def test_the_best_permitted_are_found_however_low_they_lie(count: int) -> None:
    scores = np.arange(1, 5_001, dtype=np.float32)

    found = best(scores, count, np.zeros(5_000, np.uint64), lambda place: place < 4)

    assert found == [0, 1, 2, 3][-max(count, 4) :]


def test_certainty_grows_with_words_and_with_nearness() -> None:
    def sure(covered: float, nearness: float | None) -> float:
        near = None if nearness is None else np.array([nearness], np.float32)
        return certainty(np.array([covered], np.float32), near)

    assert sure(0, None) == sure(0, 0) == sure(0, -1) == 0
    assert sure(0.2, 0.2) < sure(0.5, 0.2) < sure(0.5, 0.6) < 1
