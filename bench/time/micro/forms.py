#!/usr/bin/env python3
"""Writes wgmma_forms.h: one struct for each wgmma form that micro.cu times.

The assembly of a form names each of its accumulators, so it cannot be a template."""

FORMS = [("bf16", "SS", n) for n in (8, 16, 32, 64, 80, 96, 128, 160, 192, 256)]
FORMS += [("bf16", "RS", n) for n in (8, 32, 64, 128, 192, 256)]
FORMS += [("e4m3", "SS", n) for n in (32, 64, 128, 192, 256)] + [("e4m3", "RS", 128)]
FORMS += [("tf32", "SS", 64), ("tf32", "SS", 128), ("s8", "SS", 128), ("bf16", "SSt", 128), ("bf16", "RSt", 128)]
K = {"bf16": 16, "e4m3": 32, "tf32": 8, "s8": 32}


def form(dtype: str, kind: str, n: int) -> str:
    count = n // 2
    c_type, c_letter = ("int", "r") if dtype == "s8" else ("float", "f")
    in_registers = kind.startswith("R")
    registers = ", ".join(f"%{i}" for i in range(count))
    a = f"{{%{count}, %{count + 1}, %{count + 2}, %{count + 3}}}" if in_registers else f"%{count}"
    b = f"%{count + (4 if in_registers else 1)}"
    tail = ""
    if dtype != "s8":
        tail = ", 1, 1"
    if dtype == "bf16":
        transposed = int(kind.endswith("t"))
        tail += f", {transposed}" if in_registers else f", 0, {transposed}"
    acc = "s32" if dtype == "s8" else "f32"
    outputs = ", ".join(f'"+{c_letter}"(d[{i}])' for i in range(count))
    inputs = '"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)' if in_registers else '"l"(da), "l"(b)'
    return f"""struct {dtype}_{kind}_{n} {{
  using C = {c_type};
  static constexpr int kCount = {count}, kK = {K[dtype]}, kN = {n};
  static constexpr const char* kName = "{dtype} {kind} n{n}";
  static __device__ __forceinline__ void issue(C (&d)[{count}], const unsigned (&a)[4], unsigned long long da,
                                               unsigned long long b) {{
    (void)a, (void)da;
    asm volatile("wgmma.mma_async.sync.aligned.m64n{n}k{K[dtype]}.{acc}.{dtype}.{dtype} {{{registers}}}, {a}, {b}, 1{tail};"
                 : {outputs} : {inputs});
  }}
  static __device__ __forceinline__ void pin(C& x) {{ asm volatile("" : "+{c_letter}"(x)::"memory"); }}
}};
"""


print("// Made by forms.py.\n#pragma once")
for one in FORMS:
    print(form(*one))
print("#define ALL_FORMS(F) " + " ".join(f"F({d}_{k}_{n})" for d, k, n in FORMS))
