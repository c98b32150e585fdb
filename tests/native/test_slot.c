#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "slot.h"

/* Simulated descriptors. GONE: a file of a CPU that went offline. DEVICE: the register REGISTER.
 * SHORT, EMPTY: devices that return half a register or nothing. */
enum { GONE = 1000, DEVICE, SHORT, EMPTY, REGISTER = 0x1B1 };

static uint64_t content;

ssize_t __real_pread(int fd, void *buffer, size_t size, off_t offset);
ssize_t __wrap_pread(int fd, void *buffer, size_t size, off_t offset);

ssize_t __wrap_pread(int fd, void *buffer, size_t size, off_t offset)
{
    if (fd == GONE || (fd == DEVICE && offset != REGISTER)) {
        errno = fd == GONE ? ENODEV : EIO;
        return -1;
    }
    if (fd == DEVICE) {
        CHECK(size == sizeof content);
        memcpy(buffer, &content, size);
        return sizeof content;
    }
    if (fd == SHORT || fd == EMPTY) {
        size = fd == SHORT ? size / 2 : 0;
        memcpy(buffer, &content, size);
        errno = 0;
        return (ssize_t)size;
    }
    return __real_pread(fd, buffer, size, offset);
}

static int read_text(const char *text, uint64_t nth, uint64_t *value)
{
    int fd = memfd_create("text", 0);
    pp_slot slot = {.kind = PP_FILE, .fd = fd, .arg = nth};
    int rc;

    CHECK(fd >= 0);
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    *value = 42;
    rc = pp_slot_read(&slot, value);
    CHECK(rc == 0 || *value == 42); /* a failure leaves the value unchanged */
    close(fd);
    return rc;
}

static void check_value(const char *text, uint64_t nth, uint64_t expected)
{
    uint64_t value;
    int rc = read_text(text, nth, &value);

    if (rc || value != expected)
        fprintf(stderr, "'%s'[%d]: %d, %lld\n", text, (int)nth, rc, (long long)value);
    CHECK(rc == 0 && value == expected);
}

static void check_error(const char *text, uint64_t nth, int rc)
{
    uint64_t value;
    int got = read_text(text, nth, &value);

    if (got != rc)
        fprintf(stderr, "'%s'[%d]: %d, not %d\n", text, (int)nth, got, rc);
    CHECK(got == rc);
}

static void test_numbers(void)
{
    check_value("0\n", 0, 0);
    check_value("2400000\n", 0, 2400000);
    check_value("  17", 0, 17);
    check_value("0007\n", 0, 7);
    check_value("-5\n", 0, (uint64_t)-5);
    check_value("18446744073709551615\n", 0, UINT64_MAX);
    check_value("-9223372036854775808\n", 0, (uint64_t)1 << 63);
    check_error("18446744073709551616\n", 0, -ERANGE);
    check_error("99999999999999999999999999\n", 0, -ERANGE);
    check_error("-9223372036854775809\n", 0, -ERANGE);
}

static void test_nth(void)
{
    check_value("10 20\t-30\n40", 0, 10);
    check_value("10 20\t-30\n40", 2, (uint64_t)-30);
    check_value("10 20\t-30\n40", 3, 40);
    check_error("10 20\t-30\n40", 4, -ENODATA);
    check_value("cpu3 11 12\n", 0, 11);
    check_value("some avg10=0.50 avg60=1.00 total=123\n", 0, 123);
    check_value("1,2:3", 2, 3);
    check_value("99999999999999999999 7\n", 1, 7); /* a number too large is one of the numbers */
}

static void test_no_number(void)
{
    check_error("", 0, -ENODATA);
    check_error("\n", 0, -ENODATA);
    check_error("-", 0, -ENODATA);
    check_error("<not supported>\n", 0, -ENODATA);
    check_error("0x1f 1.5 0-3 12kHz --4 a1 1z A1 1Z 1_", 0, -ENODATA);
}

/* If the text is longer than the buffer, a number at the buffer's end is not used. */
static void test_long(void)
{
    char text[PP_FILE_TEXT + 8];

    memset(text, ' ', sizeof text);
    text[sizeof text - 1] = 0;
    memcpy(text, "5", 1);
    memcpy(text + PP_FILE_TEXT - 3, "123456", 6);
    check_value(text, 0, 5);
    check_error(text, 1, -ENODATA);
    memcpy(text + PP_FILE_TEXT - 4, "123 56", 6);
    check_value(text, 1, 123);
    memset(text, '1', PP_FILE_TEXT + 7);
    check_error(text, 0, -ENODATA);
}

static void test_errors(void)
{
    int directory = open("/", O_RDONLY | O_DIRECTORY);
    pp_slot slot = {.kind = PP_FILE, .fd = -1};
    uint64_t value;

    CHECK(pp_slot_read(&slot, &value) == -EBADF);
    slot.fd = GONE;
    CHECK(pp_slot_read(&slot, &value) == -ENODEV);
    slot.fd = directory;
    CHECK(pp_slot_read(&slot, &value) == -EISDIR);
    slot.kind = 999;
    CHECK(pp_slot_read(&slot, &value) == -ENOSYS && !pp_slot_is_valid(&slot));
    close(directory);
}

/* --- registers -------------------------------------------------------------------------------- */

static uint64_t field(pp_field field)
{
    pp_slot slot = {.kind = PP_FIELD, .fd = DEVICE, .field = &field};
    uint64_t value = 42;

    CHECK(pp_slot_is_valid(&slot) && pp_slot_column_mask(&slot) == 1);
    CHECK(pp_slot_read(&slot, &value) == 0);
    return value;
}

static void test_field(void)
{
    pp_field guarded = {.msr = REGISTER, .width = 15, .enable = 15};
    pp_slot slot = {.kind = PP_FIELD, .fd = DEVICE, .field = &guarded};
    uint64_t value = 42;

    content = 0xFEDCBA9876543210;
    CHECK(field((pp_field){.msr = REGISTER, .shift = 16, .width = 7}) == 0x54);
    CHECK(field((pp_field){.msr = REGISTER, .shift = 38, .width = 1}) == 0);
    CHECK(field((pp_field){.msr = REGISTER, .shift = 39, .width = 1}) == 1);
    CHECK(field((pp_field){.msr = REGISTER, .shift = 63, .width = 1}) == 1);
    CHECK(field((pp_field){.msr = REGISTER, .width = 63}) == 0x7EDCBA9876543210);
    CHECK(field((pp_field){.msr = REGISTER, .shift = 16, .width = 7, .below = 95}) == 11);
    CHECK(field((pp_field){.msr = REGISTER, .width = 8, .below = 15}) == (uint64_t)-1);

    content = 1200;
    CHECK(pp_slot_read(&slot, &value) == -ENODATA && value == 42);
    content |= 1 << 15;
    CHECK(pp_slot_read(&slot, &value) == 0 && value == 1200);
    guarded.msr = REGISTER + 1;
    CHECK(pp_slot_read(&slot, &value) == -EIO && value == 1200);
}

static void test_register(void)
{
    pp_slot slot = {.kind = PP_MSR, .fd = DEVICE, .arg = REGISTER};
    uint64_t value = 42;

    content = 0xFEDCBA9876543210;
    CHECK(pp_slot_is_valid(&slot) && pp_slot_column_mask(&slot) == 1);
    for (slot.fd = SHORT; slot.fd <= EMPTY; slot.fd++)
        CHECK(pp_slot_read(&slot, &value) == -EIO && value == 42);
    slot.fd = DEVICE;
    CHECK(pp_slot_read(&slot, &value) == 0 && value == content);
    slot.arg++;
    CHECK(pp_slot_read(&slot, &value) == -EIO && value == content);
}

static void test_impossible_fields(void)
{
    pp_field wrong[] = {{.width = 0}, {.width = 64}, {.shift = 57, .width = 8},
                        {.shift = UINT32_MAX, .width = 1}, {.width = 1, .enable = 64}};
    pp_slot slot = {.kind = PP_FIELD, .fd = DEVICE};

    CHECK(!pp_slot_is_valid(&slot));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        slot.field = &wrong[i];
        CHECK(!pp_slot_is_valid(&slot));
    }
}

/* The register at each of three polls, and the columns after each. */
static void test_flags(void)
{
    const uint64_t polled[] = {0x400, 0x80000C01, 0x2};
    const uint64_t expected[][5] = {{1, 0, 1, 0, 0}, {2, 1, 2, 1, 1}, {3, 1, 2, 1, 1}};
    pp_flags flags = {.msr = REGISTER, .mask = 1u << 0 | 1u << 10 | 1u << 11 | 1u << 31};
    pp_slot slot = {.kind = PP_FLAGS, .fd = DEVICE, .count = 5, .flags = &flags};
    uint64_t value[6] = {[5] = 42};

    CHECK(pp_slot_is_valid(&slot) && pp_slot_column_mask(&slot) == 0x1F);
    for (int i = 0; i < 3; i++) {
        content = polled[i];
        CHECK(pp_slot_read(&slot, value) == 0);
        CHECK(memcmp(value, expected[i], sizeof expected[i]) == 0 && value[5] == 42);
    }
    slot.fd = GONE; /* a failed poll does not count */
    CHECK(pp_slot_read(&slot, value) == -ENODEV);
    CHECK(flags.polls == 3 && memcmp(value, expected[2], sizeof expected[2]) == 0);
}

static void test_all_flags(void)
{
    pp_flags flags = {.msr = REGISTER, .mask = UINT32_MAX};
    pp_slot slot = {.kind = PP_FLAGS, .fd = DEVICE, .count = 33, .flags = &flags};
    uint64_t value[33];

    content = 0xFFFFFFFF80000000;
    CHECK(pp_slot_is_valid(&slot) && pp_slot_column_mask(&slot) == 0x1FFFFFFFF);
    CHECK(pp_slot_read(&slot, value) == 0);
    CHECK(value[0] == 1 && value[31] == 0 && value[32] == 1);
    slot.count = 32;
    CHECK(!pp_slot_is_valid(&slot));
    slot.flags = NULL;
    CHECK(!pp_slot_is_valid(&slot));
}

/* --- plans: a plan fits if each part of each row is inside the frame --------------------------- */

enum { WORDS = 20 };

static const pp_row ends_with_the_frame[] = {
    {.head = WORDS - PP_HEAD, .valid = 0, .valid_words = 1, .values = 1, .n_slots = 1},
    {.head = 0, .valid = WORDS - 2, .valid_words = 2, .values = 5, .n_slots = 1},
    {.head = 0, .valid = 5, .valid_words = 1, .values = WORDS - 8, .n_slots = 1},
};

static void a_plan_must_fit_the_frame(void)
{
    pp_slot slot = {.kind = PP_FILE, .column = 7};

    for (int i = 0; i < 3; i++) {
        CHECK(pp_plan_fits(WORDS, &ends_with_the_frame[i], 1, &slot, 1));
        CHECK(!pp_plan_fits(WORDS - 1, &ends_with_the_frame[i], 1, &slot, 1));
    }
}

static void offsets_do_not_overflow(void)
{
    for (int i = 0; i < 4; i++) {
        pp_slot slot = {.kind = PP_FILE, .column = 7};
        pp_row row = {.head = 0, .valid = 5, .valid_words = 1, .values = 6, .n_slots = 1};
        uint32_t *const parts[] = {&row.head, &row.valid, &row.values, &slot.column};

        CHECK(pp_plan_fits(WORDS, &row, 1, &slot, 1));
        *parts[i] = UINT32_MAX;
        CHECK(!pp_plan_fits(WORDS, &row, 1, &slot, 1));
    }
}

static void columns_have_valid_bits(void)
{
    pp_row row = {.head = 0, .valid = 5, .valid_words = 1, .values = 13, .n_slots = 1};
    pp_slot slot = {.kind = PP_FILE, .column = 63};

    CHECK(pp_plan_fits(1000, &row, 1, &slot, 1));
    slot.column = 64;
    CHECK(!pp_plan_fits(1000, &row, 1, &slot, 1));
    row.valid_words = 8;
    slot.column = 511;
    CHECK(pp_plan_fits(1000, &row, 1, &slot, 1));
    row.valid_words = 9;
    CHECK(!pp_plan_fits(1000, &row, 1, &slot, 1));
}

static void rows_have_all_slots(void)
{
    pp_row rows[] = {{.valid = 5, .valid_words = 1, .values = 6, .n_slots = 2},
                     {.valid = 5, .valid_words = 1, .values = 6, .n_slots = 1}};
    pp_slot slots[] = {{.kind = PP_FILE}, {.kind = PP_FILE}, {.kind = PP_FILE}, {.kind = 77}};
    pp_slot two[] = {slots[0], slots[1]};

    CHECK(pp_plan_fits(WORDS, rows, 2, slots, 3));
    CHECK(!pp_plan_fits(WORDS, rows, 2, slots, 2));
    CHECK(!pp_plan_fits(WORDS, rows, 1, slots, 3));
    rows[1].n_slots = 2; /* the last one has no kind */
    CHECK(!pp_plan_fits(WORDS, rows, 2, slots, 4));
    rows[1].n_slots = UINT32_MAX;
    CHECK(!pp_plan_fits(WORDS, rows, 2, slots, 3));
    rows[1].n_slots = 3;
    CHECK(!pp_plan_fits(WORDS, rows, 2, two, 2)); /* and reads nothing beyond them */
}

static void the_highest_column(void)
{
    pp_slot slots[] = {{.kind = PP_FILE, .column = 3}, {.kind = PP_FLAGS, .column = 9, .count = 4},
                       {.kind = PP_FILE, .column = 11}};

    CHECK(pp_plan_columns(slots, 0) == 0);
    CHECK(pp_plan_columns(slots, 1) == 4);
    CHECK(pp_plan_columns(slots, 3) == 13);
}

int main(void)
{
    test_numbers();
    test_nth();
    test_no_number();
    test_long();
    test_errors();
    test_field();
    test_register();
    test_impossible_fields();
    test_flags();
    test_all_flags();
    a_plan_must_fit_the_frame();
    offsets_do_not_overflow();
    columns_have_valid_bits();
    rows_have_all_slots();
    the_highest_column();
    return 0;
}
