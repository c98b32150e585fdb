#include "idle_program.h"

#include <stddef.h>

#include "idle_rows.h"

/*
 * Jumps name labels. Two codes that BPF does not have are for pp_idle_assemble: a label, which it
 * takes out, and the number of attempts, which it makes a constant.
 */

#define R(n) BPF_REG_##n
#define FRAME BPF_REG_10
#define OP(c, d, s, o, i) {.code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (i)}
#define ALU(op, d, s) OP(BPF_ALU64 | BPF_##op | BPF_X, d, s, 0, 0)
#define ALU_K(op, d, k) OP(BPF_ALU64 | BPF_##op | BPF_K, d, 0, 0, k)
#define LOAD(d, s, at) OP(BPF_LDX | BPF_MEM | BPF_DW, d, s, at, 0)
#define LOAD32(d, s, at) OP(BPF_LDX | BPF_MEM | BPF_W, d, s, at, 0)
#define STORE(d, at, s) OP(BPF_STX | BPF_MEM | BPF_DW, d, s, at, 0)
#define STORE32(d, at, s) OP(BPF_STX | BPF_MEM | BPF_W, d, s, at, 0)
#define ATOMIC(op, d, at, s) OP(BPF_STX | BPF_ATOMIC | BPF_DW, d, s, at, BPF_##op)
#define IF(op, d, s, label) OP(BPF_JMP | BPF_##op | BPF_X, d, s, label, 0)
#define IF_K(op, d, k, label) OP(BPF_JMP | BPF_##op | BPF_K, d, 0, label, k)
#define IF32_K(op, d, k, label) OP(BPF_JMP32 | BPF_##op | BPF_K, d, 0, label, k)
#define GOTO(label) OP(BPF_JMP | BPF_JA, 0, 0, label, 0)
#define CALL(f) OP(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_##f)
#define RETURN OP(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)
#define LABEL(label) OP(CODE_LABEL, 0, 0, label, 0)
#define TRIES(d) OP(CODE_TRIES, d, 0, 0, 0)
#define INCREMENT(d, at) LOAD(R(1), d, at), ALU_K(ADD, R(1), 1), STORE(d, at, R(1))
/* R0 = the row whose number is in the frame at KEY; an array lookup becomes a few instructions. */
#define LOOKUP()                                                                              \
    ALU(MOV, R(2), FRAME), ALU_K(ADD, R(2), KEY),                                             \
        OP(BPF_LD | BPF_DW | BPF_IMM, R(1), BPF_PSEUDO_MAP_FD, 0, 0), OP(0, 0, 0, 0, 0),    \
        CALL(map_lookup_elem), IF_K(JEQ, R(0), 0, OUT)

enum { KEY = -8, OLD = -16, NOW = -24, LEFT = -32 }; /* in the frame */
enum { BUSY = 1, READY, RETRY, FORWARD, WON, UNKNOWN, CORE_SUM, CPU_ROW, CPU_SUM, OUT };
enum { LABELS = OUT + 1 };
enum { CODE_LABEL = 0xff, CODE_TRIES = 0xf7 };

#define CPU_(field) ((int)offsetof(struct pp_idle_cpu, field))
#define CORE_(field) ((int)offsetof(struct pp_idle_core, field))

static const struct bpf_insn template[] = {
    /* R6 = state, R8 = row of the CPU, R9 = of its core, R7 = the CPU's bits in the core's word. */
    LOAD(R(6), R(1), 0),
    LOAD(R(7), R(1), 8),
    ALU_K(ADD, R(7), 1),
    STORE32(FRAME, KEY, R(7)),
    LOOKUP(),
    ALU(MOV, R(8), R(0)),
    LOAD32(R(1), R(8), CPU_(core)),
    IF_K(JEQ, R(1), 0, OUT),
    STORE32(FRAME, KEY, R(1)),
    LOOKUP(),
    ALU(MOV, R(9), R(0)),
    LOAD32(R(7), R(8), CPU_(bits)),

    /* R6 = the bits to set: known, and busy unless it goes idle (into whichever state). */
    IF32_K(JEQ, R(6), PP_IDLE_EXITED, BUSY),
    INCREMENT(R(8), CPU_(entries)),
    ALU(MOV, R(6), R(7)),
    ALU_K(AND, R(6), PP_IDLE_ALL_KNOWN),
    GOTO(READY),
    LABEL(BUSY),
    ALU(MOV, R(6), R(7)),
    LABEL(READY),
    TRIES(R(1)),
    STORE(FRAME, LEFT, R(1)),

    /* The word is read before the clock: a word ahead of the clock is true skew between CPUs.
     * The clock is read as late as possible: readers see the transition only after the swap. */
    LABEL(RETRY),
    LOAD(R(1), R(9), CORE_(word)),
    STORE(FRAME, OLD, R(1)),
    CALL(ktime_get_ns),
    STORE(FRAME, NOW, R(0)),
    LOAD(R(1), FRAME, OLD),
    ALU(MOV, R(2), R(0)),
    ALU_K(LSH, R(2), PP_IDLE_SHIFT),
    ALU(MOV, R(3), R(1)),
    ALU_K(AND, R(3), ~PP_IDLE_BITS),
    IF(JGE, R(2), R(3), FORWARD),
    ALU(MOV, R(2), R(3)), /* time does not go back: the span becomes 0 */
    LABEL(FORWARD),
    ALU(MOV, R(3), R(7)),
    ALU_K(XOR, R(3), PP_IDLE_BITS),
    ALU(AND, R(3), R(1)),
    ALU(OR, R(3), R(6)),
    ALU(OR, R(2), R(3)),
    LOAD(R(4), FRAME, LEFT),
    ALU_K(ADD, R(4), -1),
    STORE(FRAME, LEFT, R(4)),
    ALU(MOV, R(0), R(1)),
    ATOMIC(CMPXCHG, R(9), CORE_(word), R(2)),
    IF(JEQ, R(0), R(1), WON),
    IF_K(JNE, R(4), 0, RETRY),

    /* Given up: the core's state is wrong from here on, so this makes it unknown, by an AND, which
     * cannot fail. The CPU's next transition makes it known again. Until here the other CPU swapped
     * with the old state of this one, so this CPU's own row changes only now. */
    ALU(MOV, R(1), R(7)),
    ALU_K(AND, R(1), PP_IDLE_ALL_KNOWN),
    ALU_K(XOR, R(1), -1),
    ATOMIC(AND, R(9), CORE_(word), R(1)),
    ALU_K(MOV, R(1), 1),
    ATOMIC(ADD, R(9), CORE_(dropped), R(1)),
    CALL(ktime_get_ns),
    STORE(FRAME, NOW, R(0)),
    GOTO(CPU_ROW),

    /* R1 = the old word, R2 = the new one. The span between goes to the old state. */
    LABEL(WON),
    ALU(MOV, R(3), R(1)),
    ALU_K(AND, R(3), PP_IDLE_BITS),
    ALU_K(RSH, R(1), PP_IDLE_SHIFT),
    ALU_K(RSH, R(2), PP_IDLE_SHIFT),
    ALU(SUB, R(2), R(1)),
    ALU(MOV, R(4), R(9)),
    IF_K(JLT, R(3), PP_IDLE_ALL_KNOWN, UNKNOWN),
    ALU_K(AND, R(3), PP_IDLE_ANY_BUSY),
    ALU_K(LSH, R(3), 3),
    ALU(ADD, R(4), R(3)),
    GOTO(CORE_SUM),
    LABEL(UNKNOWN),
    ALU_K(ADD, R(4), 8 * PP_IDLE_CORE_UNKNOWN),
    LABEL(CORE_SUM),
    ATOMIC(ADD, R(4), CORE_(sums), R(2)),
    LOAD(R(0), FRAME, NOW),
    IF(JGE, R(0), R(1), CPU_ROW),
    ALU(SUB, R(1), R(0)),
    LOAD(R(2), R(8), CPU_(clamped_ns)),
    ALU(ADD, R(2), R(1)),
    STORE(R(8), CPU_(clamped_ns), R(2)),
    INCREMENT(R(8), CPU_(clamped)),

    /* The same for the CPU alone, by its own clock, to check the core's sums. One exchange and
     * signed spans keep them complete even if pp_idle_offline meets a CPU that comes back. */
    LABEL(CPU_ROW),
    LOAD(R(1), FRAME, NOW),
    ALU(MOV, R(2), R(1)),
    ALU_K(LSH, R(2), PP_IDLE_SHIFT),
    ALU(OR, R(2), R(6)),
    ATOMIC(XCHG, R(8), CPU_(word), R(2)),
    ALU(MOV, R(3), R(2)),
    ALU_K(RSH, R(2), PP_IDLE_SHIFT),
    ALU(SUB, R(1), R(2)),
    IF_K(JSET, R(3), PP_IDLE_ANY_BUSY, CPU_SUM),
    ALU_K(ADD, R(8), 8),
    IF_K(JSET, R(3), PP_IDLE_ALL_KNOWN, CPU_SUM),
    ALU_K(ADD, R(8), 8),
    LABEL(CPU_SUM),
    ATOMIC(ADD, R(8), CPU_(sums), R(1)),
    LABEL(OUT),
    ALU_K(MOV, R(0), 0),
    RETURN,
};

enum { TEMPLATE = sizeof template / sizeof template[0] };
_Static_assert(sizeof template / sizeof template[0] <= (size_t)PP_IDLE_INSNS, "room");

uint32_t pp_idle_assemble(struct bpf_insn *out, int map, int32_t swaps)
{
    uint32_t at[LABELS] = {0};
    uint32_t n = 0;

    for (int i = 0; i < TEMPLATE; i++) {
        if (template[i].code == CODE_LABEL)
            at[template[i].off] = n;
        else
            out[n++] = template[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        unsigned class = BPF_CLASS(out[i].code), op = BPF_OP(out[i].code);

        if (out[i].code == CODE_TRIES) {
            out[i].code = BPF_ALU64 | BPF_MOV | BPF_K;
            out[i].imm = swaps;
        } else if (out[i].code == (BPF_LD | BPF_DW | BPF_IMM)) {
            out[i++].imm = map; /* takes two places; the second has code 0 */
        } else if (class == BPF_JMP32 || (class == BPF_JMP && op != BPF_CALL && op != BPF_EXIT)) {
            out[i].off = (int16_t)(at[out[i].off] - i - 1);
        }
    }
    return n;
}
