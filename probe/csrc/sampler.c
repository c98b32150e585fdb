#define _GNU_SOURCE
#include "perfprobe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lane.h"
#include "slot.h"

enum {
    MIN_PERIOD_NS = 10000,
    MAX_WORDS = 1 << 24,
    MAX_RING = 1 << 16
};
#define MAX_PERIOD_NS ((uint64_t)1 << 42) /* about an hour; added to a time it cannot overflow */

struct pp_sampler {
    struct pp_schedule schedule;
    uint32_t words;
    uint32_t ring;
    uint64_t round;     /* the last round for which pp_drain was called */
    bool drained;       /* whether pp_drain was called */
    uint32_t delivered; /* number of CPUs whose sample of `round` is in the frame */
    uint32_t n_lanes;
    struct pp_lane **lanes; /* a lane stays after its thread has ended, for its counts */
};

/* --- the sampler ------------------------------------------------------------------------------ */

int pp_new(const pp_config *config, pp_sampler **out)
{
    pp_sampler *s;
    bool tsc = config->stamp == PP_STAMP_TSC;

    if (config->period_ns < MIN_PERIOD_NS || config->period_ns > MAX_PERIOD_NS ||
        config->first_ns > config->period_ns || config->words > MAX_WORDS ||
        config->ring == 0 || config->ring > MAX_RING ||
        (!tsc && config->stamp != PP_STAMP_RAW))
        return -EINVAL;
    s = calloc(1, sizeof *s);
    if (s == NULL)
        return -ENOMEM;
    s->words = config->words;
    s->ring = config->ring;
    s->schedule.period_ns = config->period_ns;
    s->schedule.check_cpu = config->check_cpu;
    s->schedule.clock = tsc ? pp_tsc_clock() : PP_CLOCK_RAW;
    /* Round 0 is later than now, so that all lanes that are attached at the start sample it. */
    s->schedule.start_ns = pp_clock_ns(CLOCK_MONOTONIC) +
                           (config->first_ns ? config->first_ns : config->period_ns);
    *out = s;
    return 0;
}

static void clear_lane(struct pp_lane *lane)
{
    pp_ring_free(&lane->ring);
    free(lane->rows);
    free(lane->slots);
    lane->rows = NULL;
    lane->slots = NULL;
}

void pp_free(pp_sampler *s)
{
    if (s == NULL)
        return;
    for (uint32_t i = 0; i < s->n_lanes; i++)
        if (s->lanes[i]->running)
            pp_lane_stop(s->lanes[i]);
    for (uint32_t i = 0; i < s->n_lanes; i++) {
        if (s->lanes[i]->running)
            pp_lane_join(s->lanes[i]);
        clear_lane(s->lanes[i]);
        free(s->lanes[i]);
    }
    free(s->lanes);
    free(s);
}

uint64_t pp_start_ns(const pp_sampler *s)
{
    return s->schedule.start_ns;
}

/* --- attaching and detaching lanes ------------------------------------------------------------ */

static struct pp_lane *find_lane(const pp_sampler *s, int32_t cpu)
{
    for (uint32_t i = 0; i < s->n_lanes; i++)
        if (s->lanes[i]->cpu == cpu)
            return s->lanes[i];
    return NULL;
}

static struct pp_lane *add_lane(pp_sampler *s, int32_t cpu)
{
    struct pp_lane **lanes = realloc(s->lanes, (s->n_lanes + 1) * sizeof(struct pp_lane *));
    struct pp_lane *lane;

    if (lanes == NULL)
        return NULL;
    s->lanes = lanes;
    lane = aligned_alloc(PP_CACHE_LINE, sizeof *lane);
    if (lane == NULL)
        return NULL;
    memset(lane, 0, sizeof *lane);
    lane->cpu = cpu;
    lane->schedule = &s->schedule;
    s->lanes[s->n_lanes++] = lane;
    return lane;
}

/* Copies the plan, which the caller has checked, into the lane, and makes the lane's ring. */
static int set_plan(struct pp_lane *lane, uint32_t ring, uint32_t flags, const pp_row *rows,
                    uint32_t n_rows, const pp_slot *slots, uint32_t n_slots)
{
    uint32_t offset = PP_ENTRY_ROWS;

    lane->rows = calloc(n_rows + 1, sizeof *lane->rows); /* + 1: calloc(0) may return NULL */
    lane->slots = calloc(n_slots + 1, sizeof *lane->slots);
    if (lane->rows == NULL || lane->slots == NULL)
        return -ENOMEM;
    if (n_slots)
        memcpy(lane->slots, slots, n_slots * sizeof *slots);
    lane->n_rows = n_rows;
    for (uint32_t i = 0; i < n_rows; i++) {
        struct pp_lane_row *row = &lane->rows[i];

        row->plan = rows[i];
        row->columns = pp_plan_columns(slots, rows[i].n_slots);
        row->flags = flags;
        row->offset = offset;
        offset += PP_AT_VALID + rows[i].valid_words + row->columns;
        slots += rows[i].n_slots;
    }
    return pp_ring_init(&lane->ring, ring, offset);
}

int pp_attach(pp_sampler *s, int32_t cpu, uint32_t flags, const pp_row *rows, uint32_t n_rows,
              const pp_slot *slots, uint32_t n_slots)
{
    struct pp_lane *lane;
    int rc;

    if (cpu < PP_UNPINNED_CPU || !pp_plan_fits(s->words, rows, n_rows, slots, n_slots))
        return -EINVAL;
    lane = find_lane(s, cpu);
    if (lane != NULL && lane->running)
        return -EEXIST;
    if (lane == NULL)
        lane = add_lane(s, cpu);
    if (lane == NULL)
        return -ENOMEM;
    lane->settled = false;
    rc = set_plan(lane, s->ring, flags, rows, n_rows, slots, n_slots);
    if (rc == 0)
        rc = pp_lane_start(lane, pp_next_round(&s->schedule, pp_clock_ns(CLOCK_MONOTONIC)));
    if (rc)
        clear_lane(lane);
    return rc;
}

int pp_detach(pp_sampler *s, int32_t cpu)
{
    struct pp_lane *lane = find_lane(s, cpu);

    if (lane == NULL || !lane->running)
        return -ENOENT;
    pp_lane_stop(lane);
    pp_lane_join(lane);
    lane->late += pp_ring_fill(&lane->ring);
    clear_lane(lane);
    return 0;
}

int pp_get_stats(const pp_sampler *s, int32_t cpu, pp_stats *out)
{
    struct pp_lane *lane = find_lane(s, cpu);
    clockid_t clock;

    if (lane == NULL)
        return -ENOENT;
    out->samples = pp_read_once(&lane->samples);
    out->overruns = pp_read_once(&lane->overruns);
    out->lost = pp_lane_lost(lane);
    out->repeats = pp_read_once(&lane->repeats);
    out->cpu_ns = lane->running ? 0 : lane->cpu_ns;
    out->attached = lane->running;
    out->pin_errno = pp_read_once(&lane->pin_errno);
    out->slot_errno = pp_read_once(&lane->slot_errno);
    if (lane->running && pthread_getcpuclockid(lane->thread, &clock) == 0)
        out->cpu_ns = lane->cpu_ns + pp_clock_ns(clock);
    return 0;
}

/* --- collecting a round ----------------------------------------------------------------------- */

static void copy_to_frame(struct pp_lane *lane, const uint64_t *entry, uint64_t *frame)
{
    for (uint32_t i = 0; i < lane->n_rows; i++) {
        struct pp_lane_row *row = &lane->rows[i];
        const uint64_t *in = entry + row->offset;
        const uint64_t *valid = in + PP_AT_VALID;
        uint64_t *head = frame + row->plan.head;

        head[0] = in[PP_AT_BEFORE];
        head[1] = in[PP_AT_AFTER];
        head[2] = entry[PP_ENTRY_LATENESS];
        head[4] = in[PP_AT_FLAGS] | row->flags;
        /* The flags are added until a sample with data is delivered; a sample may be lost. */
        if (!(in[PP_AT_FLAGS] & PP_ROW_ELSEWHERE))
            row->flags = 0;
        memcpy(frame + row->plan.valid, valid, row->plan.valid_words * sizeof *frame);
        memcpy(frame + row->plan.values, valid + row->plan.valid_words,
               row->columns * sizeof *frame);
    }
}

/* Copies the lane's sample of this round to the frame. False: the ring does not have it. */
static bool collect(struct pp_lane *lane, uint64_t round, uint64_t *frame)
{
    /* `next` is read before the ring: if the round is over and the ring is empty afterwards, no
     * sample can have been pushed in between. */
    bool over = pp_load_acquire(&lane->next) > round;
    const uint64_t *entry = pp_ring_peek(&lane->ring);
    bool found;

    while (entry != NULL && entry[PP_ENTRY_ROUND] < round) {
        lane->late++;
        pp_ring_pop(&lane->ring);
        entry = pp_ring_peek(&lane->ring);
    }
    if (entry == NULL) {
        lane->settled = over;
        return false;
    }
    lane->settled = true;
    found = entry[PP_ENTRY_ROUND] == round;
    if (found) {
        copy_to_frame(lane, entry, frame);
        pp_ring_pop(&lane->ring);
    }
    return found;
}

int pp_drain(pp_sampler *s, uint64_t round, uint64_t *frame, int force, uint32_t *delivered)
{
    int pending = 0;

    if (s->drained && round < s->round)
        return -EINVAL;
    if (!s->drained || round > s->round) {
        s->round = round;
        s->drained = true;
        s->delivered = 0;
        for (uint32_t i = 0; i < s->n_lanes; i++)
            s->lanes[i]->settled = false;
        memset(frame, 0, s->words * sizeof *frame);
    }
    for (uint32_t i = 0; i < s->n_lanes; i++) {
        struct pp_lane *lane = s->lanes[i];

        if (!lane->running || lane->settled)
            continue;
        if (collect(lane, round, frame) && lane->cpu != PP_UNPINNED_CPU)
            s->delivered++;
        pending += !lane->settled;
        lane->settled |= force != 0;
        for (uint32_t k = 0; k < lane->n_rows; k++)
            frame[lane->rows[k].plan.head + 3] = pp_lane_lost(lane);
    }
    *delivered = s->delivered;
    return pending;
}
