"""The tree of a conversation's messages, against one that names each parent."""

from hypothesis import given
from hypothesis import strategies as st

from passback.core.conversation.store import Span
from passback.core.conversation.tree import NO_MESSAGE, Branching, Fork, Tree

# each step appends so many messages behind one of those that are there, by its share
STEPS = st.lists(st.tuples(st.integers(0, 4), st.floats(0, 1, exclude_max=True)), max_size=12)


def grow(steps: list[tuple[int, float]]) -> tuple[Tree, list[int]]:
    """Return a tree, and the parent of each message."""
    tree, parents = Tree(), list[int]()
    for count, share in steps:
        position = round(share * len(tree))
        tree = tree.ends_before(position)
        leaf = tree.leaf
        for _ in range(count):
            parents.append(leaf)
            leaf = len(parents) - 1
        tree = tree.grown(count, len(parents) - count)
    return tree, parents


def branch(leaf: int, parents: list[int]) -> list[int]:
    """Return the numbers of the messages that end at one."""
    numbers: list[int] = []
    while leaf != NO_MESSAGE:
        numbers.append(leaf)
        leaf = parents[leaf]
    return numbers[::-1]


def in_spans(spans: tuple[Span, ...], stored: int) -> list[int]:
    return [
        number
        for span in spans
        for number in range(span.start, stored if span.end is None else span.end)
    ]


@given(STEPS)
def test_a_tree_knows_the_parent_of_each_message(steps: list[tuple[int, float]]) -> None:
    tree, parents = grow(steps)
    assert [tree.parent(number) for number in range(len(parents))] == parents


@given(STEPS, st.integers(0, 20))
def test_a_branch_is_read_from_any_position_on(steps: list[tuple[int, float]], first: int) -> None:
    tree, parents = grow(steps)
    numbers = branch(tree.leaf, parents)
    assert len(tree) == len(numbers)
    assert [tree.number(position) for position in range(len(tree))] == numbers
    assert in_spans(tree.spans(first, len(parents)), len(parents)) == numbers[first:]
    for number in range(len(parents)):
        expected = numbers.index(number) if number in numbers else None
        assert tree.position(number) == expected


@given(STEPS)
def test_what_is_appended_next_is_in_an_open_span_of_the_newest_branch(
    steps: list[tuple[int, float]],
) -> None:
    tree, parents = grow(steps)
    stored = len(parents)
    spans = tree.spans(0, stored)
    is_newest = tree.leaf == stored - 1
    assert any(span.end is None for span in spans) == is_newest
    if is_newest:
        grown = tree.grown(2, stored)
        assert grown.forks == tree.forks
        assert in_spans(spans, stored + 2) == in_spans(grown.spans(0, stored + 2), stored + 2)


def test_a_conversation_without_forks_is_the_list_of_its_messages() -> None:
    tree = Tree().grown(3, 0).grown(2, 3)
    assert tree == Tree(4)
    assert tree.spans(0, 5) == (Span(0),)
    assert tree.spans(5, 5) == (Span(5),)


def test_a_branch_that_begins_anew_follows_no_message() -> None:
    tree = Tree(2).ends_before(0).grown(1, 3)
    assert tree == Tree(3, (Fork(3, NO_MESSAGE),))
    assert tree.spans(0, 4) == (Span(3),)


@given(STEPS, st.integers(-1, 40))
def test_branches_share_their_first_messages(steps: list[tuple[int, float]], leaf: int) -> None:
    tree, parents = grow(steps)
    other = Tree(min(leaf, len(parents) - 1), tree.forks)
    one, two = branch(tree.leaf, parents), branch(other.leaf, parents)
    shared = next(
        (at for at, each in enumerate(zip(one, two, strict=False)) if each[0] != each[1]),
        min(len(one), len(two)),
    )
    assert tree.shared(other) == other.shared(tree) == shared


@given(STEPS, st.integers(-1, 40))
def test_the_newest_leaf_is_the_newest_message_behind_one(
    steps: list[tuple[int, float]], number: int
) -> None:
    tree, parents = grow(steps)
    number = min(number, len(parents) - 1)
    behind = [
        each for each in range(len(parents)) if number in (NO_MESSAGE, *branch(each, parents))
    ]
    assert tree.newest_leaf(number, len(parents)) == max(behind, default=number)


@given(STEPS)
def test_branchings_are_where_other_messages_follow(steps: list[tuple[int, float]]) -> None:
    tree, parents = grow(steps)
    numbers = branch(tree.leaf, parents)
    expected: list[Branching] = []
    for parent, current in zip([NO_MESSAGE, *numbers], [*numbers, None], strict=True):
        followers = tuple(each for each, its in enumerate(parents) if its == parent)
        if set(followers) - {current}:
            expected.append(Branching(parent, followers, current))
    assert tree.branchings(len(parents)) == expected
