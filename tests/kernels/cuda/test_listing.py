"""Listings of machine code are read as nvdisasm prints them: pieces of real ones, kept here."""

from __future__ import annotations

from kernels.cuda.listing import read_listing

NESTED = """\
	.target	sm_80
//--------------------- .text.nested           --------------------------
	.section	.text.nested,"ax",@progbits
        .global         nested
nested:
.text.nested:
        /*0000*/                   IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28] ;
        /*0010*/              @!P0 EXIT ;
.L_x_3:
        /*0020*/                   HFMA2.MMA R9, -RZ, RZ, 0, 0 ;
        /*0030*/                   LDG.E.128.STRONG.GPU R4, [R2.64] ;
.L_x_1:
.L_x_2:
        /*0040*/                   FFMA R8, R8, R4.reuse, R5 ;
        /*0050*/                   HFMA2.MMA R10, R10, R4, R5 ;
        /*0060*/                   HFMA2 R11, R11, R4, R5 ;
        /*0070*/               @P1 BRA `(.L_x_2) ;
        /*0080*/                   DFMA R12, R12, R4, R6 ;
        /*0090*/              @!P2 BRA `(.L_x_3) ;
        /*00a0*/              @!UP0 BRA `(.L_x_5) ;
        /*00b0*/                   STG.E [R2.64], R8 ;
.L_x_5:
        /*00c0*/                   EXIT ;
.L_x_4:
        /*00d0*/                   BRA `(.L_x_4);
        /*00e0*/                   NOP;
.L_x_6:
//--------------------- .text.other           --------------------------
other:
.text.other:
        /*0000*/                   EXIT ;
"""


def test_instructions_have_their_names_guards_and_operands() -> None:
    functions = read_listing(NESTED)
    assert list(functions) == ["nested", "other"]
    first, *_ = functions["nested"].instructions
    assert (first.at, first.opcode, first.modifiers) == (0, "IMAD", ("MOV", "U32"))
    assert first.operands == "R1, RZ, RZ, c[0x0][0x28]"
    assert first.guard == ""
    by_address = {one.at: one for one in functions["nested"].instructions}
    assert by_address[0x10].guard == "!P0"
    assert by_address[0xA0].guard == "!UP0"
    assert by_address[0x30].name == "LDG.E.128.STRONG.GPU"
    assert by_address[0x70].target == ".L_x_2"
    assert len(by_address) == 15
    assert [one.name for one in functions["other"].instructions] == ["EXIT"]
    assert functions["other"].loops == ()


def test_loops_are_the_jumps_back_and_not_the_one_to_itself_at_the_end() -> None:
    nested = read_listing(NESTED)["nested"]
    assert [(loop.begin, loop.end) for loop in nested.loops] == [(0x20, 0x90), (0x40, 0x70)]
    assert [nested.depth(one) for one in nested.instructions[:10]] == [0, 0, 1, 1, 2, 2, 2, 2, 1, 1]


def test_what_is_executed_in_one_pass() -> None:
    """The inner loop's body runs as often as is said; a constant's move is not counted."""
    nested = read_listing(NESTED)["nested"]
    executed = nested.executed(1, [6])
    assert executed == {
        "LDG.E.128.STRONG.GPU": 1,
        "FFMA": 6,
        "HFMA2.MMA": 6,
        "HFMA2": 6,
        "BRA": 7,
        "DFMA": 1,
    }
    assert nested.executed(2) == {"FFMA": 1, "HFMA2.MMA": 1, "HFMA2": 1, "BRA": 1}
    assert nested.executed(3) == {}
