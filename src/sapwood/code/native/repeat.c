/*
 * A call of a runner like the one before it, without the interpreter: from the agent's datagram to
 * the C function and back. code/runner/repeating.py fills in what such a call is; only the bytes of
 * the state's arrays are new, and those of numbers that the function does not take.
 *
 * Whatever else comes is handed over as it was read; nothing is decided here. Datagrams are what
 * code/runner/calls.py describes, as msgpack.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    VERSION = 2, /* of struct repeat; repeating.py names the same */
    MAX_NUMBERS = 16, /* arguments in integer registers or on the stack */
    MAX_FLOATS = 8,   /* arguments in floating-point registers */
    MAX_ARRAYS = 64,
    MAX_HEAD = 16 * 1024,  /* of a call: all but its number and the bytes of its arrays */
    MAX_ANSWER = 96 * 1024, /* of an answer: all but its number */
    NUMBER = 16,  /* room for what stands before an answer's head */
    CALL_TAIL = 2,
    ANSWER_TAIL = 12,
    PATTERN = 0xa5, /* around arrays: guarded.PATTERN */
    FORKED = -1000000, /* no error number of a system is that large */
};

struct area {
    uint64_t address, bytes;
};

struct repeat {
    uint32_t version;
    int32_t fd;
    int64_t pid;
    uint64_t times; /* how often it was called */
    double awake;   /* seconds to look for a call before sleeping, where the last came as soon */
    uint64_t soon;  /* whether it did */
    uint64_t function;
    uint64_t numbers[MAX_NUMBERS];
    uint64_t floats[MAX_FLOATS];
    uint64_t state; /* where the arrays of a call are copied to */
    uint64_t record; /* what the handler of crashes reads: call_record.py */
    uint32_t record_size;
    uint32_t head_size, state_size;
    uint32_t answer_size; /* without number and tail */
    uint32_t n_outputs, n_around;
    struct area outputs[MAX_ARRAYS];
    uint64_t places[MAX_ARRAYS]; /* of the outputs, in the answer */
    struct area around[2 * MAX_ARRAYS];
    uint64_t record_words[2 + 2 * MAX_ARRAYS];
    uint8_t head[MAX_HEAD];
    uint8_t mask[MAX_HEAD]; /* bits that must be those of the last call */
    uint8_t answer[NUMBER + MAX_ANSWER];
};

typedef void function(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                      uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                      uint64_t, uint64_t, double, double, double, double, double, double, double,
                      double);

/* The bytes of the call's number, which begins a datagram; 0 if none does. */
static uint32_t number_size(const uint8_t *at, uint64_t size)
{
    if (size < 2 || at[0] != 0x96)
        return 0;
    uint32_t bytes = at[1] < 0x80 ? 1 : at[1] >= 0xcc && at[1] <= 0xcf ? 1 + (1u << (at[1] - 0xcc)) : 0;
    return 1 + bytes <= size ? bytes : 0;
}

static int is_like(const struct repeat *r, const uint8_t *head, uint64_t size)
{
    if (size != (uint64_t)r->head_size + r->state_size + CALL_TAIL)
        return 0;
    uint8_t other = 0;
    for (uint32_t i = 0; i < r->head_size; i++)
        other |= (uint8_t)((head[i] ^ r->head[i]) & r->mask[i]);
    const uint8_t *tail = head + r->head_size + r->state_size;
    return !other && tail[0] == 0xc0 && tail[1] == 0x90; /* nothing shared, nothing free */
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/*
 * Receive a datagram. A core that sleeps takes tens of microseconds to wake up, longer than the front
 * end takes between two calls: so it is kept awake. Whoever else wants the core has it meanwhile.
 */
static ssize_t receive(struct repeat *r, uint8_t *datagram, uint64_t capacity)
{
    double begin = now(), end = r->soon ? begin + r->awake : begin;
    for (;;) {
        int flags = now() < end ? MSG_DONTWAIT : 0;
        ssize_t size = recv(r->fd, datagram, capacity, flags);
        if (size >= 0 || errno != EAGAIN) {
            r->soon = now() - begin < r->awake;
            return size;
        }
        sched_yield();
    }
}

/*
 * Each class of arguments has registers of its own, in order, and what does not fit into those for
 * integers stands on the stack, in order, too: so a function gets its own whatever it takes.
 */
static void call(const struct repeat *r)
{
    double f[MAX_FLOATS];
    memcpy(f, r->floats, sizeof f);
    const uint64_t *n = r->numbers;
    ((function *)(uintptr_t)r->function)(
        n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10], n[11], n[12], n[13],
        n[14], n[15], f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7]);
}

static int is_intact(const struct repeat *r)
{
    uint8_t other = 0;
    for (uint32_t i = 0; i < r->n_around; i++) {
        const uint8_t *at = (const uint8_t *)(uintptr_t)r->around[i].address;
        for (uint64_t j = 0; j < r->around[i].bytes; j++)
            other |= at[j] ^ PATTERN;
    }
    return !other;
}

static int answer(struct repeat *r, const uint8_t *number, uint32_t bytes, double seconds)
{
    uint8_t *head = r->answer + NUMBER, *begin = head - bytes - 1, *tail = head + r->answer_size;
    *begin = 0x96;
    memcpy(begin + 1, number, bytes);
    for (uint32_t i = 0; i < r->n_outputs; i++)
        memcpy(head + r->places[i], (const void *)(uintptr_t)r->outputs[i].address,
               r->outputs[i].bytes);
    uint64_t bits;
    memcpy(&bits, &seconds, sizeof bits);
    *tail++ = 0xc0; /* nothing shared */
    *tail++ = 0xcb;
    for (int i = 7; i >= 0; i--)
        *tail++ = (uint8_t)(bits >> (8 * i));
    *tail++ = 0xc0; /* no error */
    *tail++ = 0xc0; /* no transfers */
    ssize_t sent;
    do /* until it is sent: nobody makes this call again */
        sent = send(r->fd, begin, (size_t)(tail - begin), MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : 0;
}

/*
 * Make calls until another one comes. Returns the bytes of that, 0 when nobody will ever send one;
 * the negative number of an error; or FORKED in a copy of this process that the function has made
 * and let return. A function that wrote beside its arrays left the pattern there broken: its call
 * is handed over, and the interpreter finds the same.
 */
int64_t sapwood_repeat(struct repeat *r, uint8_t *datagram, uint64_t capacity)
{
    for (;;) {
        ssize_t size = receive(r, datagram, capacity);
        if (size <= 0)
            return size ? -errno : 0;
        uint32_t bytes = number_size(datagram, (uint64_t)size);
        const uint8_t *head = datagram + 1 + bytes;
        if (!bytes || !is_like(r, head, (uint64_t)size - 1 - bytes))
            return size;
        memcpy((void *)(uintptr_t)r->state, head + r->head_size, r->state_size);
        double begin = now();
        for (uint32_t i = 0; i < r->n_outputs; i++)
            memset((void *)(uintptr_t)r->outputs[i].address, 0, r->outputs[i].bytes);
        uint64_t *record = (uint64_t *)(uintptr_t)r->record;
        memcpy(record + 1, r->record_words + 1, r->record_size - sizeof *record);
        __atomic_store_n(record, r->record_words[0], __ATOMIC_RELEASE);
        call(r);
        __atomic_store_n(record, 0, __ATOMIC_RELEASE);
        if (getpid() != r->pid)
            return FORKED;
        if (!is_intact(r))
            return size;
        double seconds = now() - begin;
        r->times++;
        fflush(NULL); /* what was printed is there before the agent hears that it is done */
        int error = answer(r, datagram + 1, bytes, seconds);
        if (error)
            return error;
    }
}

/* The size and the version of struct repeat, for those who lay it out themselves; 0 where nobody
 * has looked how arguments are passed. */
uint64_t sapwood_repeat_layout(void)
{
#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__)) && __SIZEOF_POINTER__ == 8
    return (uint64_t)VERSION << 32 | sizeof(struct repeat);
#else
    return 0;
#endif
}
