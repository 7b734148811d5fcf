"""What a flow has to be before it is launched, beyond being readable."""

from __future__ import annotations

from reprlib import repr as brief  # of trees of any depth

from actorflow.flows.errors import FlowError, LimitExceeded
from actorflow.flows.language.parser import parse
from actorflow.flows.language.source import FlowSyntaxError
from actorflow.flows.language.tree import Tree, children, misshapen, strays
from actorflow.flows.limits import LIMITS, Limits

__all__ = ["EmptyFlow", "check_depth", "check_once", "check_text", "check_tree"]

_KNOWN = 512
_checked: dict[int, Tree] = {}


class EmptyFlow(FlowSyntaxError):
    """The text holds no node: it is empty, or blank, or nothing but comments."""


def check_text(text: str, *, file: str | None = None, limits: Limits = LIMITS) -> Tree:
    r"""Return the tree of a flow text that can be launched.

    >>> check_text("trace 'a'")[0]
    'trace'
    >>> check_text("# to do\n")
    Traceback (most recent call last):
        ...
    actorflow.flows.language.checks.EmptyFlow: ...: the flow is empty: ...

    Raises:
        FlowSyntaxError: the text cannot be read; `EmptyFlow` if there is nothing to read in it.
        LimitExceeded: it is longer than `limits.text`, or deeper than `limits.tree_depth`.

    """
    if len(text) > limits.text:
        raise LimitExceeded(
            f"the flow text has {len(text):,} characters, and may have {limits.text:,}:"
            " move parts of it to subflows"
        )
    tree = parse(text, file=file)
    if tree[:2] == ["sequence", []] and tree[2] == 0:
        source = text.split("\n", 1)[0]
        problem = "the flow is empty: it needs at least one line that is not a comment"
        raise EmptyFlow(problem, file=file, line=1, column=1, source=source)
    check_depth(tree, limits)
    return tree


def check_tree(tree: Tree, *, limits: Limits = LIMITS, above: int = 0) -> Tree:
    """Return a tree that can be executed and stored, with ``above`` levels above it.

    Takes time linear in its size. Raises FlowError if it is not a tree, and LimitExceeded if it is
    deeper than `limits.tree_depth`.
    """
    for stray in strays(tree):
        where = "" if stray is tree else f", in which {brief(stray)} is not [head, content, line]"
        raise FlowError(
            f"a flow is its text, or a tree [head, content, line], not {brief(tree)}{where}"
        )
    for part in misshapen(tree):
        raise FlowError(
            f"{brief(part)} cannot be in a flow: no text gives {brief(part[0])} such a content."
            " Write the flow as text, or compare with the tree that `parse` makes of one"
        )
    check_depth(tree, limits, above)
    return tree


def check_once(tree: Tree, limits: Limits = LIMITS) -> Tree:
    """Like `check_tree`, but trees that were checked lately are remembered: trees never change."""
    if _checked.get(id(tree)) is not tree:
        check_tree(tree, limits=limits)
        if len(_checked) >= _KNOWN:
            _checked.clear()
        _checked[id(tree)] = tree
    return tree


def check_depth(tree: Tree, limits: Limits, above: int = 0) -> None:
    """Raise LimitExceeded when a tree with ``above`` levels above it is too deep."""
    level = [tree]
    for _ in range(above, limits.tree_depth):
        level = [child for one in level for child in children(one)]
        if not level:
            return
    raise LimitExceeded(
        f"the nodes of the flow nest deeper than {limits.tree_depth} levels (line {level[0][2]}):"
        " give the inner parts a name with define"
    )
