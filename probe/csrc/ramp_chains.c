#include "ramp_chains.h"

#include <cpuid.h>

/* --- the chains ------------------------------------------------------------------------------- */

/* The factor of all multiplications; it is odd, so that no product becomes 0. */
static const uint64_t factor = 0x5851f42d4c957f2d;

/* PP_RAMP_BLOCK as a macro, because the assembler cannot read enums. */
#define BLOCK 64
_Static_assert(BLOCK == PP_RAMP_BLOCK, "a turn of the loop is a block");
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

/* 
 * Runs `blocks` blocks. `body` has `steps` multiplications of %0 and is repeated to fill a block;
 * the loop's counter does not depend on the chain. The clobbers name only the lower 128 bits of
 * vector registers, which compilers accept without AVX; no function expects the other bits to
 * survive a call. */
#define CHAIN(before, body, steps, after)                                                        \
    do {                                                                                         \
        uint64_t x = factor;                                                                     \
                                                                                                 \
        __asm__ volatile(before ".p2align 6\n1:\n\t"                                             \
                                ".rept " TEXT(BLOCK) " / " #steps "\n\t" body ".endr\n\t"        \
                                "decq %1\n\tjnz 1b\n\t" after                                    \
                         : "+&r"(x), "+&r"(blocks)                                               \
                         : "r"(factor)                                                           \
                         : "cc", "rax", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",  \
                           "xmm7", "xmm8");                                                      \
    } while (0)

#define STEP "imulq %2, %0\n\t"

/* 
 * Eight accumulators of FMAs. Each is used once in four steps, which take longer than an FMA. They
 * approach 1 by x = x * 0.5 + 0.5, so no value is a denormal, with which some cores are slow. */
#define ZERO(n) "vxorps %%xmm" #n ", %%xmm" #n ", %%xmm" #n "\n\t"
#define HALVES(v)                                                                                \
    ZERO(0) ZERO(1) ZERO(2) ZERO(3) ZERO(4) ZERO(5) ZERO(6) ZERO(7)                              \
    "movl $0x3f000000, %%eax\n\tvmovd %%eax, %%xmm8\n\tvbroadcastss %%xmm8, %%" v "8\n\t"
#define FMA(v, n) "vfmadd213ps %%" v "8, %%" v "8, %%" v #n "\n\t"
#define FOUR_STEPS(v)                                                                            \
    STEP FMA(v, 0) FMA(v, 1) STEP FMA(v, 2) FMA(v, 3) STEP FMA(v, 4) FMA(v, 5)                   \
    STEP FMA(v, 6) FMA(v, 7)

static __attribute__((noinline)) void chain_scalar(uint64_t blocks)
{
    CHAIN("", STEP, 1, "");
}

static __attribute__((noinline)) void chain_avx2(uint64_t blocks)
{
    CHAIN(HALVES("ymm"), FOUR_STEPS("ymm"), 4, "vzeroupper\n\t");
}

static __attribute__((noinline)) void chain_avx512(uint64_t blocks)
{
    CHAIN(HALVES("zmm"), FOUR_STEPS("zmm"), 4, "vzeroupper\n\t");
}

const pp_ramp_chain pp_ramp_chains[PP_RAMP_ISAS] = {
    [PP_RAMP_SCALAR] = chain_scalar,
    [PP_RAMP_AVX2] = chain_avx2,
    [PP_RAMP_AVX512] = chain_avx512,
};

/* --- ISAs of this CPU ------------------------------------------------------------------------- */

enum { XCR0_AVX = 0x6, XCR0_AVX512 = 0xe6 }; /* bits of register sets that the OS must enable */

static uint32_t read_xcr0(void)
{
    uint32_t low, high;

    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

uint32_t pp_ramp_isas(void)
{
    uint32_t found = 1u << PP_RAMP_SCALAR, state = 0;
    unsigned a, b = 0, c, d;

    if (__get_cpuid(1, &a, &b, &c, &d) && (c & bit_OSXSAVE) && (c & bit_FMA) &&
        __get_cpuid_count(7, 0, &a, &b, &c, &d))
        state = read_xcr0();
    if ((b & bit_AVX2) && (state & XCR0_AVX) == XCR0_AVX)
        found |= 1u << PP_RAMP_AVX2;
    if ((b & bit_AVX512F) && (state & XCR0_AVX512) == XCR0_AVX512)
        found |= 1u << PP_RAMP_AVX512;
    return found;
}
