"""The calculator tool: arithmetic read with Python's grammar and computed here, never handed to eval.

Bounds on length, digits and exponents keep every call short; what the numbers mean is left to the model.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence

from agent_r1.tools.protocol import JsonObject, ToolResult

Number = int | float

_CHARACTERS = 500
_DIGITS = 100  # of any whole number on the way
_SCAN = re.compile(r"(?P<call>[A-Za-z_]\w*\s*\()|(?P<number>(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,]))|[()]")

_NOT_ARITHMETIC = re.compile(
    r"(?P<sign>[#'\"\\])|(?<![A-Za-z_])(?:0[xX][\dA-Fa-f_]*)?(?P<word>(?:and|or|not|if|else|in|is|for)\b)"
)
"""What Python would read past or warn of on stderr: comments, texts, and words that may stand close behind a number."""


class Calculator:
    """Arithmetic: + - * / // % ** ( ) abs round min max sqrt, and 1,234 for 1234 outside of a function's brackets."""

    name = "calculator"

    @property
    def schema(self) -> JsonObject:
        """What the model sees, in OpenAI form."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": "Compute an arithmetic expression with + - * / // % ** abs round min max sqrt.",
                "parameters": {
                    "type": "object",
                    "properties": {"expression": {"type": "string", "description": "Such as (1,200 + 35) / 5"}},
                    "required": ["expression"],
                },
            },
        }

    def call(self, arguments: JsonObject) -> ToolResult:
        """Compute arguments["expression"]. Never raises: what cannot be computed is a result with ok False."""
        expression = arguments.get("expression") if isinstance(arguments, Mapping) else None
        if not isinstance(expression, str) or not expression.strip():
            return ToolResult("error: calculator needs the parameter 'expression', a string", ok=False)
        if unknown := sorted(str(key) for key in arguments if key != "expression"):
            return ToolResult(f"error: calculator has no parameter {unknown[0][:50]!r}, only 'expression'", ok=False)
        if len(expression) > _CHARACTERS:
            return ToolResult(f"error: 'expression' is longer than {_CHARACTERS} characters", ok=False)
        if found := _NOT_ARITHMETIC.search(expression):
            held = found["sign"] or found["word"]
            return ToolResult(f"error: 'expression' holds {held!r}, which is not arithmetic", ok=False)
        try:
            tree = ast.parse(_without_thousands_commas(expression.strip()), mode="eval")
            return ToolResult(_show(_value(tree.body)), ok=True)
        except ZeroDivisionError:
            return ToolResult("error: division by zero", ok=False)
        except (SyntaxError, UnicodeError):
            return ToolResult("error: 'expression' is not arithmetic; write it such as (1,200 + 35) / 5", ok=False)
        except OverflowError:
            return ToolResult("error: the numbers are too large", ok=False)
        except (RecursionError, MemoryError):
            return ToolResult("error: 'expression' is nested too deeply", ok=False)
        except ValueError as error:
            return ToolResult(f"error: {error}", ok=False)

    def close(self) -> None:
        """Nothing to free."""


def _without_thousands_commas(expression: str) -> str:
    """1,234 is 1234, but not between the brackets of a function, where a comma parts arguments: max(1,234)."""
    brackets: list[bool] = []  # True for those of a function

    def replace(match: re.Match[str]) -> str:
        found = match[0]
        if found.endswith("("):
            brackets.append(match["call"] is not None)
        elif found == ")" and brackets:
            brackets.pop()
        elif match["number"] and not (brackets and brackets[-1]):
            return found.replace(",", "")
        return found

    return _SCAN.sub(replace, expression)


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            result = value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            result = _BINARY[type(op)](_value(left), _value(right))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            result = _UNARY[type(op)](_value(operand))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            function, fewest, most = _FUNCTIONS[name]
            if not fewest <= len(arguments) <= most:
                raise ValueError(f"{name} does not take {len(arguments)} arguments")
            result = function([_value(argument) for argument in arguments])
        case ast.BinOp(op=ast.BitXor()):
            raise ValueError("^ is not known here; a power is written **")
        case ast.Tuple():
            raise ValueError("a comma can only part thousands (1,234) or the arguments of a function")
        case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)):
            raise ValueError(f"{name[:50]!r} is not known here; functions: {', '.join(_FUNCTIONS)}")
        case _:
            raise ValueError(f"{type(node).__name__} is not arithmetic; known: + - * / // % ** ( )")
    if not math.isfinite(result) or (isinstance(result, int) and abs(result) >= 10**_DIGITS):
        raise OverflowError
    return result


def _power(base: Number, exponent: Number) -> Number:
    """base ** exponent, refused before it is computed where it would have too many digits."""
    if (
        isinstance(base, int)
        and isinstance(exponent, int)
        and abs(base) > 1
        and exponent * math.log10(abs(base)) > _DIGITS
    ):
        raise OverflowError
    result = base**exponent
    if isinstance(result, complex):
        raise ValueError("a root of a negative number is not a real number")
    return result


def _round(values: Sequence[Number]) -> Number:
    value, digits = values[0], values[1] if len(values) > 1 else 0
    if not isinstance(digits, int) or abs(digits) > _DIGITS:
        raise ValueError(f"round needs a whole number of digits up to {_DIGITS}")
    return round(value, digits)


def _square_root(values: Sequence[Number]) -> Number:
    if values[0] < 0:
        raise ValueError("a root of a negative number is not a real number")
    return math.sqrt(values[0])


def _show(value: Number) -> str:
    """Whole numbers without .0, others to 15 significant digits, which hides the noise of binary fractions."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    return str(value) if isinstance(value, int) else format(value, ".15g")


_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_UNARY: dict[type[ast.unaryop], Callable[[Number], Number]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_FUNCTIONS: dict[str, tuple[Callable[[Sequence[Number]], Number], int, int]] = {  # with the fewest and most arguments
    "abs": (lambda values: abs(values[0]), 1, 1),
    "round": (_round, 1, 2),
    "min": (min, 1, _CHARACTERS),
    "max": (max, 1, _CHARACTERS),
    "sqrt": (_square_root, 1, 1),
}
