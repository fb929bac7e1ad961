"""Reads a plan.json as docs/plan.md says it, with nothing of ours: what a launcher in another language would do, up to the driver's calls."""

import re

FUNCTIONS = {"ceil_div": lambda a, b: -(-a // b), "min": min, "max": max}
RELATIONS = {
    "at_least": lambda a, b: a >= b,
    "at_most": lambda a, b: a <= b,
    "equal": lambda a, b: a == b,
    "multiple_of": lambda a, b: b != 0 and a % b == 0,
}


class Expression:
    """The page's grammar, a function for each of its rules; evaluated while it is read."""

    def __init__(self, text, sizes):
        self.words = re.findall(r"[a-z_][a-z0-9_]*|[0-9]+|[-+*(),]", text)[::-1]
        self.sizes = sizes

    def take(self, *expected):
        return self.words.pop() if self.words and self.words[-1] in expected else None

    def need(self, word):
        if self.take(word) is None:
            raise ValueError(f"{word} expected")

    def expression(self):
        value = self.term()
        while sign := self.take("+", "-"):
            value = whole(value + self.term() if sign == "+" else value - self.term())
        return value

    def term(self):
        value = self.factor()
        while self.take("*"):
            value = whole(value * self.factor())
        return value

    def factor(self):
        if self.take("-"):
            return whole(-self.factor())
        if self.take("("):
            value = self.expression()
            self.need(")")
            return value
        if function := self.take(*FUNCTIONS):
            self.need("(")
            left = self.expression()
            self.need(",")
            right = self.expression()
            self.need(")")
            if function == "ceil_div" and right < 1:
                raise ValueError("ceil_div by less than 1")
            return FUNCTIONS[function](left, right)
        word = self.words.pop()
        return whole(int(word)) if word.isdigit() else self.sizes[word]


def whole(value):
    if not -(2**63) <= value < 2**63:
        raise OverflowError(value)
    return value


def evaluate(text, sizes):
    if isinstance(text, int):
        return text
    expression = Expression(text, sizes)
    value = expression.expression()
    if expression.words:
        raise ValueError(f"{text}: more than an expression")
    return value


def resolve(launch, given, scalars, pointers):
    """Sizes, workspace in bytes, tensor maps by name, and steps with their grids and parameters; skipped steps are left out."""
    if launch["version"] > 2 or launch["expression_version"] > 1:
        raise ValueError("a newer plan")
    sizes = {}
    for size in launch["sizes"]:
        name = size["name"]
        sizes[name] = given[name] if name in given else evaluate(size["default"], sizes)
        if not size["min"] <= sizes[name] <= size["max"]:
            raise ValueError(f"{name} = {sizes[name]}")
    for rule in launch["domain"]:
        if not RELATIONS[rule["relation"]](evaluate(rule["lhs"], sizes), evaluate(rule["rhs"], sizes)):
            raise ValueError(rule["message"])
    scalars = {scalar["name"]: scalars.get(scalar["name"], scalar.get("default")) for scalar in launch["scalars"]}

    def list_of(expressions):
        return [evaluate(text, sizes) for text in expressions]

    def parameter(of):
        kind = of["kind"]
        if kind == "tensor_map":
            return kind, of["source"]
        if kind == "pointer":
            base = pointers[of["source"]]
            return kind, base + evaluate(of["offset_bytes"], sizes) if base else 0
        if kind == "f32":
            return kind, scalars[of["source"]]
        value = evaluate(of["value"], sizes)
        if kind == "i32" and not -(2**31) <= value < 2**31:
            raise ValueError(f"{of['name']} = {value}: no i32")
        return kind, value

    maps = {
        of["name"]: {**of, "dims": list_of(of["dims"]), "strides_bytes": list_of(of["strides_bytes"])}
        for of in launch["tensor_maps"]
    }
    steps = [
        {**step, "grid": list_of(step["grid"]), "parameters": [parameter(of) for of in step["parameters"]]}
        for step in launch["steps"]
    ]
    return {
        "sizes": sizes,
        "workspace": evaluate(launch["workspace"]["bytes"], sizes),
        "maps": maps,
        "steps": [step for step in steps if 0 not in step["grid"]],
    }
