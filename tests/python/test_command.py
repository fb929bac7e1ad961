"""Pictures for notebooks, by the command that the wheel brings."""

import xml.etree.ElementTree

import pytest
import tessera
from tessera import command


def test_the_command_of_the_wheel_is_found():
    assert command.command_path().endswith("tessera/bin/tessera")


def test_a_layout_is_text_and_drawing(tmp_path):
    page = tessera.layout("fragment", "mma.m16n8k16.bf16", operand="A")
    assert "m16n8k16" in repr(page)
    drawn = xml.etree.ElementTree.fromstring(page._repr_svg_())
    assert drawn.tag.endswith("svg") and len(list(drawn.iter())) > 100
    page.save(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text() == page.svg
    with pytest.raises(tessera.UsageError, match="wgmma.m65n64k16"):
        tessera.layout("fragment", "wgmma.m65n64k16.bf16")
    with pytest.raises(tessera.UsageError, match="no flag of layout swizzle"):
        tessera.layout("swizzle", "128B", dtype="bf16")


def test_a_timeline_has_every_warp_and_unit():
    line = tessera.timeline("gemm", m=128, n=64, k=128)
    assert "pass" in line.text
    texts = {element.text for element in xml.etree.ElementTree.fromstring(line.svg).iter() if element.tag.endswith("text")}
    assert {"warp 0", "warp 7", "TMA", "tensor core"} <= texts
    waits = {element.text for element in xml.etree.ElementTree.fromstring(line.svg).iter() if element.tag.endswith("title")}
    assert any(text.startswith("wgmma.wait_group") for text in waits)
    assert sum(event["ph"] == "X" for event in line.events) > 20
    other = tessera.timeline("gemm", m=128, n=64, k=128, schedule="adversarial", seed=3)
    assert other.svg != line.svg
