"""How is an expression read from text? Operator precedence with stacks of its own, so depth is no danger.

Nodes are finished, and their places recorded, in canonical order: operands first, left to right.
"""

from __future__ import annotations

from sys import intern
from typing import Any, Final, NoReturn, cast

from vyre.ir import limits
from vyre.ir import nodes as n
from vyre.ir.forms import AXES, EXPRESSION_FORMS, ID_WORDS, STATEMENT_FORMS, Form, Slot
from vyre.ir.literals import BadLiteral, is_negatable_word, read_number
from vyre.ir.names import WORD
from vyre.ir.reader import Reader
from vyre.semantics.operators import BINARY, UNARY

# Entries of the stack of what is still open: how tightly it binds, what it is, where it starts. A bracket binds less
# than every operator (a call, a load's buffer, or None for plain parentheses), and the bottom less than a bracket.
_Pending = tuple[int, Any, int]
_BRACKET: Final = 0
_BOTTOM: Final[_Pending] = (-1, None, 0)
_INFIX: Final[dict[str, _Pending]] = {
    row.spelling: (row.precedence, row.name, 0) for row in BINARY.values() if row.is_symbol
}
_TIGHTEST: Final = max(precedence for precedence, _, _ in _INFIX.values()) + 1
_PREFIX: Final = {row.spelling: row.name for row in UNARY.values() if row.is_symbol}
_IDS: Final = {(word, f".{axis}"): node(number) for word, node in ID_WORDS.items() for number, axis in enumerate(AXES)}
# Parentheses add no depth of their own; they may be generous, not endless.
_MOST_PENDING: Final = 4 * limits.MAX_EXPRESSION_DEPTH
# Where these stand, a bracket was forgotten.
_NEVER_INSIDE: Final = frozenset(("", "{", "}"))
_AFTER_WORD: Final = frozenset(("(", "[", "\n", *(f".{axis}" for axis in AXES)))


class _Call:
    """A call whose arguments are being read."""

    __slots__ = ("arguments", "depth", "form", "start")

    def __init__(self, form: Form, start: int) -> None:
        self.form = form
        self.start = start
        self.arguments: list[Any] = []
        self.depth = 0


class ExpressionReader(Reader):
    """A reader of expressions and of the statements that are written as calls."""

    def expression(self, *, opened: int = 0) -> n.Expr:
        """Reads an expression, up to the first token that cannot continue it.

        ``opened`` counts the brackets around it: inside any, line ends are blanks.
        """
        return cast("n.Expr", self._read(None, opened))

    def statement_call(self, word: str, start: int) -> n.Stmt:
        """Reads a statement that is written as a call, from its ``(`` on."""
        call = _Call(STATEMENT_FORMS[word], start)
        self.advance()
        return cast("n.Stmt", self._read(call, 1) if self._expression_is_due(call) else call.form.build(call.arguments))

    def _read(self, outermost: _Call | None, opened: int) -> n.Node:
        leaves, advance, spans, record = self.leaves, self.next_token, self.spans, self.spans.append
        most_spans = 2 * limits.MAX_EXPRESSIONS
        token, start, stop, end = self.token, self.start, self.stop, self.end
        # Finished operands: the node, where it starts with its parentheses, and its depth.
        values: list[tuple[n.Expr, int, int]] = []
        pending: list[_Pending] = [_BOTTOM]
        if outermost is not None:
            pending.append((_BRACKET, outermost, outermost.start))
        node: n.Expr | None
        while True:
            # An operand is due.
            if len(pending) > _MOST_PENDING:
                self._refuse_open(start, stop)
            begin = start
            node = leaves.get(token)
            if node is not None:
                word, end = token, stop
                token, start, stop = advance()
                special = token in _AFTER_WORD and type(node) is n.Var and (opened > 0 or token != "\n")
                if not special:
                    values.append((node, begin, 1))
                    record(begin)
                    record(end)
            elif token == "(":
                pending.append((_BRACKET, None, start))
                opened += 1
                token, start, stop = advance()
                continue
            elif token == "\n" and opened:
                token, start, stop = advance()
                continue
            elif token in _PREFIX:
                symbol, end = token, stop
                token, start, stop = advance()
                while token == "\n" and opened:
                    token, start, stop = advance()
                if symbol == "-" and (token[:1].isdigit() or is_negatable_word(token)):
                    node, end = self._number("-" + token, begin, stop), stop
                    values.append((node, begin, 1))
                    record(begin)
                    record(end)
                    token, start, stop = advance()
                    special = False
                else:
                    pending.append((_TIGHTEST, _PREFIX[symbol], begin))
                    continue
            elif token[:1].isdigit():
                self._number(token, start, stop)
                continue
            elif WORD.fullmatch(token):
                word, end = token, stop
                token, start, stop = advance()
                special = True
            else:
                self.token, self.start, self.stop, self.end = token, start, stop, end
                self._refuse_operand(pending)

            if special:
                while token == "\n" and opened:
                    token, start, stop = advance()
                if token == "(":
                    self.token, self.start, self.stop, self.end = token, start, stop, end
                    call = self._call(word, begin)
                    due = self._expression_is_due(call)
                    token, start, stop, end = self.token, self.start, self.stop, self.end
                    if due:
                        pending.append((_BRACKET, call, begin))
                        opened += 1
                        continue
                    node = cast("n.Expr", call.form.build(call.arguments))
                elif token == "[":
                    self._name_at(word, begin)
                    pending.append((_BRACKET, intern(word), begin))
                    opened += 1
                    token, start, stop = advance()
                    continue
                elif (word, token) in _IDS:
                    node, end = _IDS[word, token], stop
                    token, start, stop = advance()
                else:
                    node = self._name_at(word, begin)
                values.append((node, begin, 1))
                record(begin)
                record(end)

            # An operator is due, or the end of something.
            while True:
                infix = _INFIX.get(token)
                if infix is None:
                    if token == "\n" and opened:
                        token, start, stop = advance()
                        continue
                    binding = 1
                else:
                    binding = infix[0]
                while pending[-1][0] >= binding:
                    tightness, name, begin = pending.pop()
                    right, _, depth = values.pop()
                    if tightness == _TIGHTEST:
                        node = n.UnOp(name, right)
                        depth += 1
                    else:
                        left, begin, left_depth = values.pop()
                        node = n.BinOp(name, left, right)
                        depth = 1 + (depth if depth > left_depth else left_depth)
                    if depth > limits.MAX_EXPRESSION_DEPTH:
                        self._refuse_depth(begin, end)
                    values.append((node, begin, depth))
                    record(begin)
                    record(end)
                if infix is not None:
                    pending.append(infix)
                    token, start, stop = advance()
                    break

                if len(spans) > most_spans:
                    self._refuse_count(start, stop)
                tightness, bracket, begin = pending[-1]
                if tightness < _BRACKET:
                    self.token, self.start, self.stop, self.end = token, start, stop, end
                    return values[0][0]
                node, _, depth = values.pop()
                if type(bracket) is _Call and (token == "," or token == ")"):
                    bracket.arguments.append(node)
                    if depth > bracket.depth:
                        bracket.depth = depth
                    self.token, self.start, self.stop, self.end = token, start, stop, end
                    if token == ",":
                        self.advance()
                    due = self._expression_is_due(bracket)
                    token, start, stop, end = self.token, self.start, self.stop, self.end
                    if due:
                        break
                    pending.pop()
                    opened -= 1
                    finished = bracket.form.build(bracket.arguments)
                    if bracket is outermost:
                        return finished
                    node = cast("n.Expr", finished)
                    depth = 1 + bracket.depth
                elif token == ")" and bracket is None:
                    pending.pop()
                    opened -= 1
                    end = stop
                    token, start, stop = advance()
                    values.append((node, begin, depth))
                    continue
                elif token == "]" and type(bracket) is str:
                    pending.pop()
                    opened -= 1
                    end = stop
                    token, start, stop = advance()
                    node = n.Load(bracket, node)
                    depth += 1
                else:
                    self.token, self.start, self.stop, self.end = token, start, stop, end
                    self._refuse_closing(bracket, begin)
                if depth > limits.MAX_EXPRESSION_DEPTH:
                    self._refuse_depth(begin, end)
                values.append((node, begin, depth))
                record(begin)
                record(end)

    def _number(self, text: str, start: int, stop: int) -> n.Expr:
        known = self.leaves.get(text)
        if known is None:
            try:
                known = self.leaves[text] = read_number(text)
            except BadLiteral as problem:
                self.fail(problem.message, problem.fix, start, stop)
        return known

    def _name_at(self, word: str, start: int) -> n.Var:
        """The variable of that name, which was read already."""
        leaf = self.leaves.get(word)
        if type(leaf) is n.Var:
            return leaf
        self.start, self.stop = start, start + len(word)
        self.token = word
        return self._new_name(word, "an expression")

    def _call(self, word: str, start: int) -> _Call:
        """Opens a call whose word was read; the token in hand is its ``(``."""
        form = EXPRESSION_FORMS.get(word)
        if form is None:
            stop = start + len(word)
            if word in STATEMENT_FORMS:
                message = f"{word}(...) is a statement, not an expression."
                self.fail(message, "write it on a line of its own.", start, stop)
            fix = 'call a registered operation with call("its.id", ...).'
            self.unknown("a function", word, EXPRESSION_FORMS, fix, start, stop)
        self.advance()
        return _Call(form, start)

    def _expression_is_due(self, call: _Call) -> bool:
        """Reads the arguments that are not expressions, and the ``)`` if it comes; whether an expression is next."""
        form, arguments = call.form, call.arguments
        while True:
            self.skip_newlines()
            if self.token == ")":
                if len(arguments) < form.required:
                    message = f"{form.word} needs {form.required} arguments, not {len(arguments)}."
                    self.fail(message, f"write {form.signature}.")
                self.advance()
                return False
            slot = form.slot(len(arguments))
            if slot is None:
                self.fail(f"{form.word} takes {len(form.slots)} arguments, not more.", f"write {form.signature}.")
            if slot is Slot.EXPRESSION or slot is Slot.REST:
                return True
            arguments.append(self._plain_argument(slot))
            self.skip_newlines()
            if self.token == ",":
                self.advance()
            elif self.token != ")":
                self.unexpected("',' or ')'", f"write {form.signature}.")

    def _plain_argument(self, slot: Slot) -> Any:
        match slot:
            case Slot.NAME:
                return self.identifier("the name of a buffer")
            case Slot.OPERATOR:
                return intern(self.word(slot.value, "write one of add, min, max, and, or, xor."))
            case Slot.TYPE:
                return self.dtype()
            case Slot.STRING:
                return self.string(slot.value)
            case Slot.INTEGER:
                return self.integer(slot.value)
            case Slot.BYTES:
                return self.payload()
            case _:
                return self.order()

    def _refuse_depth(self, start: int, stop: int) -> NoReturn:
        message = f"the expression is more than {limits.MAX_EXPRESSION_DEPTH:,} levels deep."
        self.fail(message, "give parts of it names with let.", start, stop)

    def _refuse_open(self, start: int, stop: int) -> NoReturn:
        message = f"more than {_MOST_PENDING:,} brackets and operators are open here."
        self.fail(message, "give parts of the expression names with let.", start, stop)

    def _refuse_count(self, start: int, stop: int) -> NoReturn:
        message = f"more than {limits.MAX_EXPRESSIONS:,} expressions."
        self.fail(message, "split it into smaller programs.", start, stop)

    def _refuse_operand(self, pending: list[_Pending]) -> NoReturn:
        if self.token in _NEVER_INSIDE:
            for tightness, bracket, start in reversed(pending):
                if tightness == _BRACKET:
                    self._refuse_closing(bracket, start)
        if self.token == "\n" and len(pending) > 1:
            self.unexpected("an operand", "put the whole expression in parentheses to continue it on the next line.")
        if self.token.startswith(('"', 'x"')):
            self.unexpected("an expression", 'strings stand only where a form names one, as in call("its.id", x).')
        self.unexpected("an expression", "write a number, a variable, an element a[i], an id like gid.x or a call.")

    def _refuse_closing(self, bracket: Any, start: int) -> NoReturn:
        """Refuses the token in hand where a bracket should be closed or go on."""
        closing = "]" if type(bracket) is str else ")"
        if self.token in _NEVER_INSIDE:
            message = f"a bracket is opened here and never closed with '{closing}'."
            self.fail(message, f"write the '{closing}'.", start, start + 1)
        wanted = f"an operator, ',' or '{closing}'" if type(bracket) is _Call else f"an operator or '{closing}'"
        self.unexpected(wanted, f"close the bracket with '{closing}', or write an operator between two operands.")
