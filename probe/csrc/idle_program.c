#include "idle_program.h"

#include <stddef.h>
#include <string.h>

#include "idle_rows.h"

/* The offsets and bits that the machine code below assumes, compared with idle_rows.h. */
#define AT(type, field, offset)                                                               \
    _Static_assert(offsetof(struct pp_idle_##type, field) == (offset), #type " " #field)
AT(cpu, sums, 8);
AT(cpu, entries, 32);
AT(cpu, clamped, 40);
AT(cpu, clamped_ns, 48);
AT(cpu, core, 56);
AT(cpu, bits, 60);
AT(core, sums, 8);
AT(core, dropped, 48);
_Static_assert(PP_IDLE_SHIFT == 4 && PP_IDLE_BITS == 15 && PP_IDLE_ANY_BUSY == 3 &&
                   PP_IDLE_ALL_KNOWN == 12 && PP_IDLE_CORE_UNKNOWN == 4 && PP_IDLE_EXITED == -1,
               "the bits of a row's word");

/* The machine code, an instruction in each word; a test compares it with idle_program.s. */
static const uint64_t words[] = {
    0x0000000000001679, 0x0000000000081779, 0x0000000100000707, 0x00000000fff87a63,
    0x000000000000a2bf, 0xfffffff800000207, 0x0000000000001118, 0x0000000000000000,
    0x0000000100000085, 0x0000000000590015, 0x00000000000008bf, 0x0000000000388161,
    0x0000000000560115, 0x00000000fff81a63, 0x000000000000a2bf, 0xfffffff800000207,
    0x0000000000001118, 0x0000000000000000, 0x0000000100000085, 0x00000000004f0015,
    0x00000000000009bf, 0x00000000003c8761, 0xffffffff00060616, 0x0000000000208179,
    0x0000000100000107, 0x000000000020187b, 0x00000000000076bf, 0x0000000c00000657,
    0x0000000000010005, 0x00000000000076bf, 0x00000008000001b7, 0x00000000ffe01a7b,
    0x0000000000009179, 0x00000000fff01a7b, 0x0000000500000085, 0x00000000ffe80a7b,
    0x00000000fff0a179, 0x00000000000002bf, 0x0000000400000267, 0x00000000000013bf,
    0xfffffff000000357, 0x000000000001323d, 0x00000000000032bf, 0x00000000000073bf,
    0x0000000f000003a7, 0x000000000000135f, 0x000000000000634f, 0x000000000000324f,
    0x00000000ffe0a479, 0xffffffff00000407, 0x00000000ffe04a7b, 0x00000000000010bf,
    0x000000f1000029db, 0x00000000000a101d, 0x00000000ffe90455, 0x00000000000071bf,
    0x0000000c00000157, 0xffffffff000001a7, 0x00000050000019db, 0x00000001000001b7,
    0x00000000003019db, 0x0000000500000085, 0x00000000ffe80a7b, 0x0000000000160005,
    0x00000000000013bf, 0x0000000f00000357, 0x0000000400000177, 0x0000000400000277,
    0x000000000000121f, 0x00000000000094bf, 0x0000000c000403a5, 0x0000000300000357,
    0x0000000300000367, 0x000000000000340f, 0x0000000000010005, 0x0000002000000407,
    0x00000000000824db, 0x00000000ffe8a079, 0x000000000007103d, 0x000000000000011f,
    0x0000000000308279, 0x000000000000120f, 0x000000000030287b, 0x0000000000288179,
    0x0000000100000107, 0x000000000028187b, 0x00000000ffe8a179, 0x00000000000012bf,
    0x0000000400000267, 0x000000000000624f, 0x000000e1000028db, 0x00000000000023bf,
    0x0000000400000277, 0x000000000000211f, 0x0000000300030345, 0x0000000800000807,
    0x0000000c00010345, 0x0000000800000807, 0x00000000000818db, 0x00000000000000b7,
    0x0000000000000095,
};
enum { WORDS = sizeof words / sizeof words[0] };
/* Indices of words to be completed: two loads of the map's address, and the number of attempts. */
enum { CPU_MAP = 6, CORE_MAP = 16, SWAPS = 30 };

_Static_assert(sizeof(struct bpf_insn) == sizeof words[0], "an instruction is a word");
_Static_assert(sizeof words / sizeof words[0] <= (size_t)PP_IDLE_INSNS, "room");

uint32_t pp_idle_program(struct bpf_insn *out, int map, int32_t swaps)
{
    memcpy(out, words, sizeof words);
    out[CPU_MAP].imm = out[CORE_MAP].imm = map;
    out[SWAPS].imm = swaps;
    return WORDS;
}
