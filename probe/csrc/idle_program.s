; The BPF program at the raw tracepoint cpu_idle, whose words are in idle_program.c. A test decodes the
; words and compares them with this listing, which is in the syntax of LLVM's assembler.
;
; The program runs on the CPU that goes idle or leaves idle, with interrupts off: only the other CPU of
; its core can interfere, and only with the core's row. Its context is two words: the idle state that is
; entered (-1: idle is left), and the CPU. The rows are those of idle_rows.h; a row's word is
; `time << 4 | known1 known0 busy1 busy0`.
;
;   row of a CPU:  +0 word, +8 busy, +16 idle, +24 unknown, +32 entries, +40 clamped, +48 clamped_ns,
;                  +56 core (number of its row), +60 bits (its own, known and busy, in the core's word)
;   row of a core: +0 word, +8 four sums by the busy bits, +40 unknown, +48 dropped
;   frame:         -8 key of a row, -16 old word, -24 now, -32 attempts that are left
;
; "map" is the map of the rows; the loader puts its descriptor there, and the number of attempts into
; the first instruction after "ready".

    ; r6 = state
    r6 = *(u64 *)(r1 + 0)

    ; the row of the CPU has number CPU + 1: row 0 is the head
    r7 = *(u64 *)(r1 + 8)
    r7 += 1
    *(u32 *)(r10 - 8) = r7
    r2 = r10
    r2 += -8
    r1 = map
    call map_lookup_elem
    if r0 == 0 goto out

    ; r8 = row of the CPU
    r8 = r0

    ; 0: the CPU is not traced
    r1 = *(u32 *)(r8 + 56)
    if r1 == 0 goto out
    *(u32 *)(r10 - 8) = r1
    r2 = r10
    r2 += -8
    r1 = map
    call map_lookup_elem
    if r0 == 0 goto out

    ; r9 = row of its core, r7 = the CPU's bits in the core's word
    r9 = r0
    r7 = *(u32 *)(r8 + 60)

    ; r6 = the bits to set: known, and busy unless it goes idle, into whichever state
    if w6 == -1 goto busy
    r1 = *(u64 *)(r8 + 32)
    r1 += 1
    *(u64 *)(r8 + 32) = r1
    r6 = r7
    r6 &= 12
    goto ready
busy:
    r6 = r7
ready:
    r1 = 8
    *(u64 *)(r10 - 32) = r1

; The word is read before the clock: a word ahead of the clock is true skew between CPUs. The
; clock is read as late as possible: readers see the transition only after the swap.
retry:
    r1 = *(u64 *)(r9 + 0)
    *(u64 *)(r10 - 16) = r1
    call ktime_get_ns
    *(u64 *)(r10 - 24) = r0
    r1 = *(u64 *)(r10 - 16)
    r2 = r0
    r2 <<= 4
    r3 = r1
    r3 &= -16
    if r2 >= r3 goto forward

    ; time does not go back: the span becomes 0
    r2 = r3

; r2 = the new word: the time, the other CPU's bits as they were, and this CPU's
forward:
    r3 = r7
    r3 ^= 15
    r3 &= r1
    r3 |= r6
    r2 |= r3
    r4 = *(u64 *)(r10 - 32)
    r4 += -1
    *(u64 *)(r10 - 32) = r4

    ; swap the core's word if it is still the old one
    r0 = r1
    r0 = cmpxchg_64(r9 + 0, r0, r2)
    if r0 == r1 goto won
    if r4 != 0 goto retry

    ; No attempts are left. The core's state is wrong from now on, so it is made unknown, by an AND,
    ; which cannot fail. The CPU's next transition makes it known again. Until here the other CPU swapped
    ; with the old state of this one, so this CPU's own row changes only now.
    r1 = r7
    r1 &= 12
    r1 ^= -1
    lock *(u64 *)(r9 + 0) &= r1
    r1 = 1
    lock *(u64 *)(r9 + 48) += r1
    call ktime_get_ns
    *(u64 *)(r10 - 24) = r0
    goto cpu_row

; r1 = the old word, r2 = the new one. The span between them goes to the old state of the core.
won:
    r3 = r1
    r3 &= 15
    r1 >>= 4
    r2 >>= 4
    r2 -= r1
    r4 = r9
    if r3 < 12 goto unknown
    r3 &= 3
    r3 <<= 3
    r4 += r3
    goto core_sum
unknown:
    r4 += 32
core_sum:
    lock *(u64 *)(r4 + 8) += r2

    ; count the updates in which this CPU's clock was behind the core's word
    r0 = *(u64 *)(r10 - 24)
    if r0 >= r1 goto cpu_row
    r1 -= r0
    r2 = *(u64 *)(r8 + 48)
    r2 += r1
    *(u64 *)(r8 + 48) = r2
    r1 = *(u64 *)(r8 + 40)
    r1 += 1
    *(u64 *)(r8 + 40) = r1

; Update the CPU's own row in the same way, by its own clock; it serves to check the core's sums. One
; exchange and signed spans keep its sums complete even if pp_idle_offline runs while the CPU comes
; back online.
cpu_row:
    r1 = *(u64 *)(r10 - 24)
    r2 = r1
    r2 <<= 4
    r2 |= r6
    r2 = xchg_64(r8 + 0, r2)
    r3 = r2
    r2 >>= 4
    r1 -= r2

    ; r8 = the row, moved on to the sum of the old state: busy, idle, unknown
    if r3 & 3 goto cpu_sum
    r8 += 8
    if r3 & 12 goto cpu_sum
    r8 += 8
cpu_sum:
    lock *(u64 *)(r8 + 8) += r1
out:
    r0 = 0
    exit
