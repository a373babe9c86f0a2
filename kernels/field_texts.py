"""What the fields of a pydantic model are: the texts below them in its class."""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise

from pydantic import BaseModel


def field_texts(model: type[BaseModel]) -> dict[str, str]:
    """Field -> the text below it, on one line, also of the classes that the model extends.

    Read from the source when the documentation is written, so that importing a model costs nothing.
    """
    texts: dict[str, str] = {}
    for kind in model.__mro__:
        if not issubclass(kind, BaseModel) or kind is BaseModel:
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
        of_class = [node.body for node in tree.body if isinstance(node, ast.ClassDef)]
        for field, text in pairwise(of_class[0]):
            match field, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(said))),
                ):
                    texts.setdefault(name, " ".join(said.split()))
    return texts
