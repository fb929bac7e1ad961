#!/usr/bin/env python3
"""Writes the description of an H100 from that of the H200: describe_h100.py < h200.json > h100.json

Both have the same multiprocessor; the memory is another, by published numbers."""

import json
import sys


def inferred(node: dict) -> dict:
    if "value" in node and "source" in node:
        if node["certainty"] == "published":
            return node
        return {**node, "source": f"the H200's number, not measured on an H100: {node['source']}", "certainty": "inferred"}
    return {key: inferred(value) if isinstance(value, dict) else value for key, value in node.items()}


def main() -> None:
    gpu = inferred(json.load(sys.stdin))
    gpu.pop("judged", None)
    gpu["name"] = "H100"
    gpu["note"] = "The multiprocessor, the L2 and launches are the H200's, where they were measured: nothing was on an H100. Memory by published numbers."
    gpu["l2"]["bytes"] = {"value": 52428800, "source": "NVIDIA H100 white paper: 50 MB", "certainty": "published"}
    gpu["hbm"] = {
        "latency": {"value": 700, "source": "markdewing/AI_kernels latency@0d701ad", "certainty": "published"},
        "terabytes_per_second": {
            "value": 3.25,
            "source": "3.35 TB/s by pins, and the H200's part of its own (4.65 of 4.8)",
            "certainty": "inferred",
        },
    }
    json.dump(gpu, sys.stdout, indent=1)
    print()


main()
