"""Matrix expressions as tables of entries."""

from __future__ import annotations

from verifiers.math.answers import is_collection, members
from verifiers.math.forms import (
    NotAnExpressionError,
)
from verifiers.math.tree import (
    Add,
    Group,
    Items,
    Matrix,
    Mul,
    Node,
)


def rows_of(node: Node) -> list[list[Node]]:
    """The entries of a matrix expression.

    Raises:
        NotAnExpressionError: if it is none.
    """
    match node:
        case Matrix(rows):
            return [list(row) for row in rows]
        case Group(_, _, items) | Items(items):
            if all(isinstance(item, Group) for item in items) and len({len(members(i) or ()) for i in items}) == 1:
                return [list(members(item) or ()) for item in items]
            return [list(items)]
        case Add(terms):
            tables = [rows_of(term) for term in terms]
            if len({(len(table), len(table[0])) for table in tables}) != 1:
                raise NotAnExpressionError("a sum of matrices of different shapes")
            return [[Add(cells) for cells in zip(*rows, strict=True)] for rows in zip(*tables, strict=True)]
        case Mul(factors):
            scalars = tuple(factor for factor in factors if not is_collection(factor))
            tables = [rows_of(factor) for factor in factors if is_collection(factor)]
            if not tables:
                raise NotAnExpressionError("a matrix inside an expression")
            result = tables[0]
            for table in tables[1:]:
                result = _matrix_product(result, table)
            return [[Mul((*scalars, cell)) for cell in row] for row in result] if scalars else result
    raise NotAnExpressionError("no matrix")


def _matrix_product(left: list[list[Node]], right: list[list[Node]]) -> list[list[Node]]:
    if len(left[0]) != len(right) or len(left) * len(right) * len(right[0]) > 1000:
        raise NotAnExpressionError("a product of matrices that do not fit")
    return [
        [Add(tuple(Mul((a, b)) for a, b in zip(row, column, strict=True))) for column in zip(*right, strict=True)]
        for row in left
    ]
