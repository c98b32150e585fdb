#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

/* What a file of a CPU that went off answers; no file here can be made to. */
enum { GONE = 1000 };

static ssize_t fake_pread(int fd, void *buffer, size_t size, off_t offset)
{
    if (fd == GONE) {
        errno = ENODEV;
        return -1;
    }
    return pread(fd, buffer, size, offset);
}

#define pread fake_pread
#include "slot.h"
#undef pread

static int read_text(const char *text, uint64_t nth, uint64_t *value)
{
    int fd = memfd_create("text", 0);
    pp_slot slot = {.kind = PP_FILE, .fd = fd, .arg = nth};
    int rc;

    CHECK(fd >= 0);
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    *value = 42;
    rc = pp_read_slot(&slot, value);
    CHECK(rc == 0 || *value == 42); /* a failure leaves the value alone */
    close(fd);
    return rc;
}

static void gives(const char *text, uint64_t nth, uint64_t expected)
{
    uint64_t value;
    int rc = read_text(text, nth, &value);

    if (rc || value != expected)
        fprintf(stderr, "'%s'[%d]: %d, %lld\n", text, (int)nth, rc, (long long)value);
    CHECK(rc == 0 && value == expected);
}

static void fails(const char *text, uint64_t nth, int rc)
{
    uint64_t value;
    int got = read_text(text, nth, &value);

    if (got != rc)
        fprintf(stderr, "'%s'[%d]: %d, not %d\n", text, (int)nth, got, rc);
    CHECK(got == rc);
}

static void test_numbers(void)
{
    gives("0\n", 0, 0);
    gives("2400000\n", 0, 2400000);
    gives("  17", 0, 17);
    gives("0007\n", 0, 7);
    gives("-5\n", 0, (uint64_t)-5);
    gives("18446744073709551615\n", 0, UINT64_MAX);
    gives("-9223372036854775808\n", 0, (uint64_t)1 << 63);
    fails("18446744073709551616\n", 0, -ERANGE);
    fails("99999999999999999999999999\n", 0, -ERANGE);
    fails("-9223372036854775809\n", 0, -ERANGE);
}

static void test_nth(void)
{
    gives("10 20\t-30\n40", 0, 10);
    gives("10 20\t-30\n40", 2, (uint64_t)-30);
    gives("10 20\t-30\n40", 3, 40);
    fails("10 20\t-30\n40", 4, -ENODATA);
    gives("cpu3 11 12\n", 0, 11);
    gives("some avg10=0.50 avg60=1.00 total=123\n", 0, 123);
    gives("1,2:3", 2, 3);
    gives("99999999999999999999 7\n", 1, 7); /* a number too large is one of the numbers */
}

static void test_no_number(void)
{
    fails("", 0, -ENODATA);
    fails("\n", 0, -ENODATA);
    fails("-", 0, -ENODATA);
    fails("<not supported>\n", 0, -ENODATA);
    fails("0x1f 1.5 0-3 12kHz --4", 0, -ENODATA);
}

/* A text longer than the buffer: a number that may go on behind its end is none. */
static void test_long(void)
{
    char text[PP_FILE_TEXT + 8];

    memset(text, ' ', sizeof text);
    text[sizeof text - 1] = 0;
    memcpy(text, "5", 1);
    memcpy(text + PP_FILE_TEXT - 3, "123456", 6);
    gives(text, 0, 5);
    fails(text, 1, -ENODATA);
    memcpy(text + PP_FILE_TEXT - 4, "123 56", 6);
    gives(text, 1, 123);
    memset(text, '1', PP_FILE_TEXT + 7);
    fails(text, 0, -ENODATA);
}

static void test_errors(void)
{
    int directory = open("/", O_RDONLY | O_DIRECTORY);
    pp_slot slot = {.kind = PP_FILE, .fd = -1};
    uint64_t value;

    CHECK(pp_read_slot(&slot, &value) == -EBADF);
    slot.fd = GONE;
    CHECK(pp_read_slot(&slot, &value) == -ENODEV);
    slot.fd = directory;
    CHECK(pp_read_slot(&slot, &value) == -EISDIR);
    slot.kind = 999;
    CHECK(pp_read_slot(&slot, &value) == -ENOSYS && !pp_slot_known(&slot));
    close(directory);
}

int main(void)
{
    test_numbers();
    test_nth();
    test_no_number();
    test_long();
    test_errors();
    return 0;
}
