/*
 * Waves and calls that are like the ones before them, without the interpreter. Python's protocol
 * core hears of all of it afterwards, from the same bytes; everything works without this library.
 *
 * What is read and written is the wire format of docs/reference/protocol.md; the constants in
 * wire.h are generated from Python's messages (wire.py).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fenv.h>
#include <math.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "wire.h"

/* --- msgpack ------------------------------------------------------------------------------------ */

struct reader {
    const uint8_t *at, *end;
    int wrong;
};

static uint64_t big_endian(struct reader *in, int size)
{
    uint64_t value = 0;
    if (in->end - in->at < size) {
        in->wrong = 1;
        return 0;
    }
    for (int i = 0; i < size; i++)
        value = value << 8 | *in->at++;
    return value;
}

static uint64_t read_uint(struct reader *in)
{
    uint64_t tag = big_endian(in, 1);
    if (tag < 0x80)
        return tag;
    if (tag >= 0xcc && tag <= 0xcf)
        return big_endian(in, 1 << (tag - 0xcc));
    in->wrong = 1;
    return 0;
}

static void must_be(struct reader *in, uint8_t byte)
{
    if (big_endian(in, 1) != byte)
        in->wrong = 1;
}

static int next_is(struct reader *in, uint8_t byte)
{
    return in->at < in->end && *in->at == byte;
}

static const uint8_t *read_binary(struct reader *in, uint64_t *size)
{
    uint64_t tag = big_endian(in, 1);
    *size = 0;
    if (tag < 0xc4 || tag > 0xc6) {
        in->wrong = 1;
        return in->at;
    }
    *size = big_endian(in, 1 << (tag - 0xc4));
    if (in->wrong || (uint64_t)(in->end - in->at) < *size) {
        in->wrong = 1;
        *size = 0;
        return in->at;
    }
    const uint8_t *data = in->at;
    in->at += *size;
    return data;
}

/* The writer's room is looked at by whoever writes: see fits(). */

static uint8_t *write_big_endian(uint8_t *out, uint64_t value, int size)
{
    for (int i = size - 1; i >= 0; i--)
        *out++ = (uint8_t)(value >> (8 * i));
    return out;
}

static uint8_t *write_uint(uint8_t *out, uint64_t value)
{
    if (value < 0x80) {
        *out++ = (uint8_t)value;
        return out;
    }
    int power = value <= UINT8_MAX ? 0 : value <= UINT16_MAX ? 1 : value <= UINT32_MAX ? 2 : 3;
    *out++ = (uint8_t)(0xcc + power);
    return write_big_endian(out, value, 1 << power);
}

static uint8_t *write_double(uint8_t *out, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    *out++ = 0xcb;
    return write_big_endian(out, bits, 8);
}

static uint8_t *write_bytes(uint8_t *out, const uint8_t *data, uint64_t size)
{
    memcpy(out, data, size);
    return out + size;
}

static uint8_t *write_binary(uint8_t *out, const uint8_t *data, uint64_t size)
{
    int power = size <= UINT8_MAX ? 0 : size <= UINT16_MAX ? 1 : 2;
    *out++ = (uint8_t)(0xc4 + power);
    return write_bytes(write_big_endian(out, size, 1 << power), data, size);
}

static uint64_t little_endian(const uint8_t *at, int size)
{
    uint64_t value = 0;
    for (int i = size - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

/* Write what stands before a frame's header. */
static void write_prefix(uint8_t *frame, uint64_t header, uint64_t payload, uint8_t flags)
{
    const uint8_t magic[4] = {'S', 'W', FRAME_VERSION, flags};
    memcpy(frame, magic, sizeof magic);
    for (int i = 0; i < 4; i++)
        frame[4 + i] = (uint8_t)(header >> (8 * i));
    for (int i = 0; i < 8; i++)
        frame[8 + i] = (uint8_t)(payload >> (8 * i));
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* --- sockets, with TLS or without --------------------------------------------------------------- */

/*
 * TLS is Python's: its functions encrypt and decrypt, and the rest of a wave's way is this library's.
 * These are of CPython's stable ABI, and of the interpreter that has loaded this library; they are
 * weak so that a program without one can load it, too, for waves without TLS.
 */
#define PYTHON __attribute__((weak)) extern
PYTHON void *PyExc_OSError;
PYTHON void *PyBytes_FromStringAndSize(const char *, ssize_t);
PYTHON int PyBytes_AsStringAndSize(void *, char **, ssize_t *);
PYTHON void *PyLong_FromLong(long);
PYTHON long PyLong_AsLong(void *);
PYTHON void *PyObject_CallFunctionObjArgs(void *, ...);
PYTHON void Py_DecRef(void *);
PYTHON int PyErr_ExceptionMatches(void *);
PYTHON void PyErr_Clear(void);
PYTHON void *PyEval_SaveThread(void);
PYTHON void PyEval_RestoreThread(void *);

enum { TLS_RECORD = 16 * 1024 }; /* bytes of one at most: Python reads no more at once */

struct tls {
    uint64_t read, write; /* Python's functions; 0 for a socket without TLS */
    uint64_t lost;        /* whether one of them was interrupted: what became of its bytes is unknown */
};

/*
 * Functions that may send or receive are called with the interpreter's lock. They let it go at once,
 * and have it again for each call of Python.
 */
static __thread void *without_lock;

static void let_go(void)
{
    without_lock = PyEval_SaveThread();
}

static void take_lock(void)
{
    PyEval_RestoreThread(without_lock);
}

/*
 * A function has raised. An OSError says that nothing was done, and is raised again when the event
 * loop tries the same. Any other is that of a signal's handler, and is raised when Python goes on.
 */
static ssize_t raised(struct tls *tls)
{
    if (PyErr_ExceptionMatches(PyExc_OSError))
        PyErr_Clear();
    else
        tls->lost = 1;
    return -1;
}

static void *called(uint64_t function, void *argument)
{
    void *result = argument ? PyObject_CallFunctionObjArgs((void *)(uintptr_t)function, argument, NULL) : NULL;
    if (argument)
        Py_DecRef(argument);
    return result;
}

static ssize_t write_by_python(struct tls *tls, const uint8_t *data, size_t size)
{
    void *sent = called(tls->write, PyBytes_FromStringAndSize((const char *)data, (ssize_t)size));
    if (!sent)
        return raised(tls);
    long done = PyLong_AsLong(sent);
    Py_DecRef(sent);
    return done;
}

static ssize_t read_by_python(struct tls *tls, uint8_t *out)
{
    char *data;
    ssize_t size;
    void *record = called(tls->read, PyLong_FromLong(TLS_RECORD));
    if (!record || PyBytes_AsStringAndSize(record, &data, &size))
        return raised(tls);
    memcpy(out, data, (size_t)size);
    Py_DecRef(record);
    return size;
}

/* Send like send(2). With TLS all is sent or nothing, and then the same bytes are to be sent next. */
static ssize_t put(int fd, struct tls *tls, const uint8_t *data, size_t size)
{
    if (!tls->write)
        return send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    take_lock();
    ssize_t sent = write_by_python(tls, data, size);
    let_go();
    return sent;
}

/* Receive like recv(2). Of a TLS record nothing stays behind, so a socket is ready if it is. */
static ssize_t get(int fd, struct tls *tls, uint8_t *out, size_t room)
{
    if (!tls->read)
        return recv(fd, out, room, MSG_DONTWAIT);
    size_t got = 0;
    ssize_t more = TLS_RECORD;
    take_lock();
    while (more == TLS_RECORD && room - got >= TLS_RECORD) {
        more = read_by_python(tls, out + got);
        got += more > 0 ? (size_t)more : 0;
    }
    let_go();
    errno = EIO;
    return got && !tls->lost ? (ssize_t)got : more == TLS_RECORD ? -1 : more;
}

/* === exchange: waves of the client ============================================================ */

/*
 * One wave of a stream that flows, at the root: the same frame to all children, one frame from
 * each of them. The thread that wants the result does this itself while the thread of the event
 * loop sleeps; exchange.py arms it, and tells the protocol core afterwards what passed.
 *
 * Nothing is understood here but where a frame ends and how the one begins that is waited for.
 * Whatever else comes stays as it is, and is the event loop's: nothing is decided here.
 *
 * Who may touch what follows from the state:
 *
 *     OFF --armed--> READY --begin--> BUSY <--> PAUSED --commit--> READY
 *      ^               |                \         |
 *      +--taken back---+                 +--------+--> HANDED --taken back--> OFF
 *
 * BUSY is a thread inside of this library. From READY, PAUSED and HANDED the event loop may take
 * everything back at any time.
 */

enum {
    EXCHANGE_VERSION = 8,         /* of struct exchange; exchange_library.py names the same */
    MAX_PEERS = 256,     /* children */
    MAX_FD = 4096,       /* descriptors that are known by their number */
    EXCHANGE_MAX_EVENTS = 64,
    EXCHANGE_MAX_WAVES = 512,     /* after which the protocol core is to hear of them */
    EXCHANGE_MAX_FRAME = 80 * 1024,
    EXCHANGE_JOURNAL = 512 * 1024,
    MAX_AROUND = PREFIX + 64, /* bytes of a wave's frame beside body and payload */
    NO_PEER = 0xffff,
    ALIGNMENT = 64, /* of a slot */
    ASIDE = 16 * 1024,
};

enum state { OFF, READY, BUSY, PAUSED, HANDED };

struct peer {
    int32_t fd;
    uint32_t sent;  /* bytes of the frame that its socket took */
    uint32_t got;   /* bytes in its slot */
    uint32_t whole; /* bytes of the frame that is waited for, once it is there */
    struct tls tls;
};

struct exchange {
    uint32_t version;
    int32_t outer_fd; /* what the event loop sleeps on: the epoll of all descriptors is in it */
    int32_t main_fd;  /* that one */
    int32_t bell_fd;  /* an eventfd in it, which wakes the event loop */
    uint32_t state;
    uint32_t n_peers;
    uint32_t slot; /* bytes of a slot; the slots follow this structure */
    uint32_t waves;
    uint32_t journal_size; /* of the waves that are done; the one under way follows */
    uint32_t frame_size;   /* of the wave under way, 0 for none */
    uint32_t head_size;
    uint32_t left;      /* peers that are waited for */
    uint32_t n_arrived; /* of the last wait */
    uint32_t aside_size;
    uint32_t spare;  /* answers that may be missing while this thread looks for them */
    uint32_t looked; /* whether it has, since the last one came */
    uint64_t ticket; /* what it was armed for */
    uint64_t owner;  /* the thread that has begun the wave under way */
    uint64_t stream; /* whose waves are exchanged */
    uint64_t first;  /* the number of the first one since it was armed */
    int64_t room;   /* cost that each child still takes */
    int64_t budget; /* cost of answers after which children are owed credit */
    double time;    /* of the last answer */
    double spin;   /* seconds to look before sleeping */
    uint8_t head[64];
    uint32_t arrived[MAX_PEERS]; /* peers */
    struct peer peers[MAX_PEERS];
    uint16_t index[MAX_FD];
    uint8_t journal[EXCHANGE_JOURNAL];
    uint8_t aside[ASIDE]; /* frames that can wait, each behind its peer and size */
};

static uint8_t *slot_of(struct exchange *x, uint32_t peer)
{
    uint64_t first = (sizeof *x + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return (uint8_t *)x + first + (uint64_t)peer * x->slot;
}

static int advance(struct exchange *x, uint32_t from, uint32_t to)
{
    return __atomic_compare_exchange_n(&x->state, &from, to, 0, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}

/* Whether the event loop wakes of what happens to any descriptor. */
static void listen_to(struct exchange *x, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.fd = x->main_fd};
    epoll_ctl(x->outer_fd, EPOLL_CTL_MOD, x->main_fd, &event);
}

/*
 * Leave the wave to the event loop, as it is. The state changes last: from then on the loop may
 * close these descriptors, and others may get their numbers.
 */
static int hand_over(struct exchange *x)
{
    listen_to(x, EPOLLIN);
    uint64_t one = 1;
    (void)!write(x->bell_fd, &one, sizeof one);
    advance(x, BUSY, HANDED);
    return -1;
}

/* The size of the frame that begins here; 0 if it is not all there, -1 if it cannot be. */
static int64_t frame_size(const struct exchange *x, const uint8_t *at, uint32_t got)
{
    if (got < PREFIX)
        return 0;
    uint64_t header = little_endian(at + 4, 4), payload = little_endian(at + 8, 8);
    if (at[0] != 'S' || at[1] != 'W' || at[2] != 1 || at[3] > 1 || header < 2 ||
        header > x->slot || payload > x->slot || PREFIX + header + payload > x->slot)
        return -1;
    uint64_t size = PREFIX + header + payload;
    return got < size ? 0 : (int64_t)size;
}

/* Where the msgpack number that begins here ends, as long as it is not negative; 0 if none does. */
static uint64_t past_number(const uint8_t *header, uint64_t at, uint64_t size)
{
    if (!at || at >= size)
        return 0;
    uint8_t tag = header[at];
    return tag < 0x80 ? at + 1 : tag >= 0xcc && tag <= 0xcf ? at + 1 + (1u << (tag - 0xcc)) : 0;
}

/* The root's requests have arrived: [tag, source, root, requests, four numbers, none missing]. */
static int is_receipt(const uint8_t *header, uint64_t size)
{
    uint64_t at = past_number(header, 2, size);
    if (size < 9 || header[0] != 0x90 + ACKNOWLEDGEMENT_FIELDS || header[1] != ACKNOWLEDGEMENT || header[2] > 0xcd || !at || at + 2 > size ||
        header[at] != ROOT || header[at + 1] != REQUESTS)
        return 0;
    at += 2;
    for (int i = 0; i < 4; i++)
        at = past_number(header, at, size);
    return at && at == size - 1 && header[at] == 0x90;
}

/* A sign of life, credit, or a receipt: nobody waits for these. */
static int can_wait(const uint8_t *at, uint32_t size)
{
    uint64_t length = little_endian(at + 4, 4);
    const uint8_t *header = at + PREFIX;
    if (PREFIX + length != size || (header[0] & 0xf0) != 0x90)
        return 0;
    return header[1] == HEARTBEAT || header[1] == CREDIT || is_receipt(header, length);
}

static int put_aside(struct exchange *x, uint32_t peer, const uint8_t *at, uint32_t size)
{
    uint32_t head[2] = {peer, size};
    if (x->aside_size + sizeof head + size > ASIDE)
        return 0;
    memcpy(x->aside + x->aside_size, head, sizeof head);
    memcpy(x->aside + x->aside_size + sizeof head, at, size);
    x->aside_size += (uint32_t)sizeof head + size;
    return 1;
}

static uint32_t padded(uint32_t size)
{
    return (size + 7) & ~7u;
}

static uint32_t entry_size(const struct exchange *x, uint32_t frame)
{
    return 8 + padded(frame) + padded(4 * x->n_peers);
}

/* Become BUSY with a frame of this size; 0 if that is not for this library at present. */
static int enter(struct exchange *x, uint64_t ticket, uint64_t size)
{
    if (!advance(x, READY, BUSY))
        return 0;
    if (ticket == x->ticket && x->waves < EXCHANGE_MAX_WAVES && size <= EXCHANGE_MAX_FRAME && x->budget > 0 &&
        x->room - (int64_t)size - MESSAGE_COST > 0 &&
        x->journal_size + entry_size(x, (uint32_t)size) <= EXCHANGE_JOURNAL)
        return 1;
    advance(x, BUSY, READY);
    return 0;
}

/* Send the frame that lies in the journal to all children; its answers are to begin with the head. */
static int begin(struct exchange *x, uint64_t owner, uint32_t size)
{
    const uint8_t *frame = x->journal + x->journal_size + 8;
    int all = 1;
    listen_to(x, 0);
    __atomic_store_n(&x->owner, owner, __ATOMIC_RELEASE);
    x->frame_size = size;
    x->left = x->n_peers;
    x->looked = 0;
    for (uint32_t i = 0; i < x->n_peers; i++)
        x->peers[i].sent = x->peers[i].got = x->peers[i].whole = 0;
    for (uint32_t i = 0; i < x->n_peers && all; i++) {
        ssize_t sent = put(x->peers[i].fd, &x->peers[i].tls, frame, size);
        x->peers[i].sent = sent > 0 ? (uint32_t)sent : 0;
        all = sent == (ssize_t)size;
    }
    if (!all)
        return hand_over(x);
    advance(x, BUSY, PAUSED);
    return 1;
}

/*
 * Send the next wave of the stream to all children: the message
 * [tag, stream, wave, attempt 0, body, confirmed, no ranks, version 0], whose answers begin with
 * [tag, stream, wave, attempt 0. Python's messages are what they are to be: it compares.
 * Returns 0 if that is not for this library at present, and nothing was done; 1 if it is on its
 * way; -1 if it is now the event loop's.
 */
int sapwood_exchange_begin_wave(struct exchange *x, uint64_t owner, uint64_t ticket, const uint8_t *body,
                                uint64_t body_size, const uint8_t *payload, uint64_t payload_size)
{
    if (body_size > EXCHANGE_MAX_FRAME || payload_size > EXCHANGE_MAX_FRAME ||
        !enter(x, ticket, body_size + payload_size + MAX_AROUND))
        return 0;
    uint64_t wave = x->first + x->waves;
    uint8_t *frame = x->journal + x->journal_size + 8, *header = frame + PREFIX, *at = header;
    *at++ = 0x90 + DOWN_FIELDS;
    *at++ = DOWN;
    at = write_uint(at, x->stream);
    at = write_uint(at, wave);
    *at++ = 0;
    x->head_size = (uint32_t)(at - header);
    memcpy(x->head, header, x->head_size);
    x->head[0] = 0x90 + UP_FIELDS;
    x->head[1] = UP;
    at = write_binary(at, body, body_size);
    at = write_uint(at, wave - 1);
    *at++ = 0x90;
    *at++ = 0;
    write_prefix(frame, (uint64_t)(at - header), payload_size, 0);
    memcpy(at, payload, payload_size);
    let_go();
    int begun = begin(x, owner, (uint32_t)(at + payload_size - frame));
    take_lock();
    return begun;
}

static int is_owner(const struct exchange *x, uint64_t owner)
{
    return __atomic_load_n(&x->owner, __ATOMIC_ACQUIRE) == owner;
}

/*
 * Go on with one's own wave; 0 if that is the event loop's by now. Who has lost a wave leaves that
 * of another alone; one who sees its loss only in BUSY is waited for, it goes back at once.
 */
static int go_on(struct exchange *x, uint64_t owner)
{
    while (is_owner(x, owner)) {
        uint32_t seen = PAUSED;
        if (__atomic_compare_exchange_n(&x->state, &seen, BUSY, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE)) {
            if (is_owner(x, owner))
                return 1;
            advance(x, BUSY, PAUSED);
        } else if (seen != BUSY) {
            return 0;
        }
    }
    return 0;
}

/* Look at what has come of a child; 0 if there is something for the event loop. */
static int examine(struct exchange *x, uint32_t number)
{
    struct peer *peer = &x->peers[number];
    uint8_t *slot = slot_of(x, number);
    for (;;) {
        uint8_t *at = slot + peer->whole;
        int64_t size = frame_size(x, at, peer->got - peer->whole);
        if (size <= 0) /* what is behind the answer is to be there as a whole, or not at all */
            return !size && (!peer->whole || peer->got == peer->whole);
        if (can_wait(at, (uint32_t)size)) {
            if (!put_aside(x, number, at, (uint32_t)size))
                return 0;
            peer->got -= (uint32_t)size;
            memmove(at, at + size, peer->got - peer->whole);
        } else if (!peer->whole && PREFIX + x->head_size <= size &&
                   !memcmp(at + PREFIX, x->head, x->head_size)) {
            peer->whole = (uint32_t)size;
            x->arrived[x->n_arrived++] = number;
            x->left--;
        } else {
            return 0;
        }
    }
}

static int take(struct exchange *x, uint32_t number)
{
    struct peer *peer = &x->peers[number];
    if (peer->got >= x->slot)
        return 0;
    uint8_t *slot = slot_of(x, number);
    ssize_t got = get(peer->fd, &peer->tls, slot + peer->got, x->slot - peer->got);
    if (got <= 0)
        return got < 0 && (errno == EAGAIN || errno == EINTR);
    peer->got += (uint32_t)got;
    return examine(x, number);
}

/*
 * Look for answers before sleeping: a core that sleeps takes tens of microseconds to wake up. Whoever
 * else wants this core has it meanwhile. Returns what epoll_wait does.
 */
static int look(struct exchange *x, struct epoll_event *found, double end)
{
    x->looked = 1;
    double until = now() + x->spin;
    for (;;) {
        int count = epoll_wait(x->main_fd, found, EXCHANGE_MAX_EVENTS, 0);
        if (count || now() >= (until < end ? until : end))
            return count;
        sched_yield();
    }
}

/*
 * Wait up to `timeout` milliseconds, below 0 for ever, until answers are there. Returns how many
 * came (`arrived` says whose), or -1 if the wave is now the event loop's. Where fewer are missing
 * than there are cores it looks for them first, and returns 0 before it sleeps: a signal that came
 * meanwhile is Python's to look at.
 */
static int exchange_wait(struct exchange *x, uint64_t owner, int timeout)
{
    struct epoll_event found[EXCHANGE_MAX_EVENTS];
    if (!go_on(x, owner))
        return -1;
    double end = timeout < 0 ? INFINITY : now() + 1e-3 * timeout;
    x->n_arrived = 0;
    while (x->left && !x->n_arrived) {
        int looks = x->spin > 0 && x->left <= x->spare && !x->looked && timeout;
        int count = looks ? look(x, found, end)
                          : epoll_wait(x->main_fd, found, EXCHANGE_MAX_EVENTS, timeout);
        if (!count && looks)
            break;
        if (count <= 0) /* a signal is Python's to look at */
            return hand_over(x);
        x->looked = 0;
        for (int i = 0; i < count; i++) {
            int fd = found[i].data.fd;
            uint16_t number = fd >= 0 && fd < MAX_FD ? x->index[fd] : NO_PEER;
            if (number == NO_PEER || found[i].events != EPOLLIN || !take(x, number))
                return hand_over(x);
        }
        if (timeout >= 0) {
            double left = end - now();
            timeout = left > 0 ? (int)(1e3 * left) + 1 : 0;
        }
    }
    advance(x, BUSY, PAUSED);
    return (int)x->n_arrived;
}

int sapwood_exchange_wait(struct exchange *x, uint64_t owner, int timeout)
{
    let_go();
    int came = exchange_wait(x, owner, timeout);
    take_lock();
    return came;
}

/* The answers are good: the wave is done. Returns how many are; 0 if it is the event loop's by now. */
int sapwood_exchange_commit(struct exchange *x, uint64_t owner)
{
    if (!go_on(x, owner))
        return 0;
    uint8_t *entry = x->journal + x->journal_size;
    uint32_t sizes[MAX_PEERS], most = 0;
    for (uint32_t i = 0; i < x->n_peers; i++) {
        sizes[i] = x->peers[i].got;
        most = sizes[i] > most ? sizes[i] : most;
    }
    memcpy(entry, &x->frame_size, sizeof x->frame_size);
    memcpy(entry + 8 + padded(x->frame_size), sizes, sizeof *sizes * x->n_peers);
    x->journal_size += entry_size(x, x->frame_size);
    x->room -= (int64_t)x->frame_size + MESSAGE_COST;
    x->budget -= (int64_t)most + MESSAGE_COST;
    x->frame_size = 0;
    x->waves++;
    x->time = now();
    listen_to(x, EPOLLIN);
    int done = (int)x->waves;
    advance(x, BUSY, READY);
    return done;
}

/* Whoever has begun a wave cannot go on with it. Returns 0 if it is the event loop's by now. */
int sapwood_exchange_abandon(struct exchange *x, uint64_t owner)
{
    if (!go_on(x, owner))
        return 0;
    hand_over(x);
    return 1;
}

/* The event loop: what was armed is its own again. Returns 0 while a thread is at it. */
int sapwood_exchange_take_back(struct exchange *x)
{
    if (advance(x, READY, OFF) || advance(x, HANDED, OFF))
        return 1;
    if (!advance(x, PAUSED, OFF))
        return 0;
    listen_to(x, EPOLLIN);
    return 1;
}

/* The event loop: callers may begin waves. */
void sapwood_exchange_arm(struct exchange *x)
{
    memset(x->index, 0xff, sizeof x->index);
    for (uint32_t i = 0; i < x->n_peers; i++)
        x->index[x->peers[i].fd] = (uint16_t)i;
    x->waves = x->journal_size = x->frame_size = x->aside_size = 0;
    advance(x, OFF, READY);
}

/* The size and the version of struct exchange, for those who lay it out themselves. */
uint64_t sapwood_exchange_layout(void)
{
    return (uint64_t)EXCHANGE_VERSION << 32 | sizeof(struct exchange);
}

/* === relay: waves through an agent =============================================================== */

/*
 * The shortest way of a wave through an agent: from its parent to its runner and back, without
 * the interpreter. relay.py arms it when a stream flows, and afterwards gives the same
 * bytes to the protocol core, which thus knows of everything that passed.
 *
 * It understands one thing: a wave like the one before it, on one stream, whose answer fits.
 * Whatever else comes is handed over unread, or as it was read; nothing is decided here.
 *
 * What is read is the wire format of docs/reference/protocol.md: frames whose header is a msgpack
 * array. Every length is held against the bytes that are there before it is believed.
 */

enum {
    RELAY_VERSION = 3,              /* of struct relay; relay_library.py names the same */
    MAX_BLOCKS = 16,          /* results whose memory is known */
    RELAY_MAX_EVENTS = 32,
    MAX_NAMES = 512,          /* procedure and context of a call, encoded */
    RELAY_MAX_FRAME = 64 * 1024,    /* of the parent */
    RELAY_JOURNAL = 1024 * 1024,
    RELAY_ENOUGH = 128 * 1024,      /* bytes of journal after which Python is to catch up */
    RELAY_MAX_WAVES = 64,           /* waves after which it is to catch up */
};

enum record { FRAME_IN, CALL_OUT, RESULT_IN, FRAME_OUT };

struct block {
    uint64_t inode;
    int64_t fd;
};

struct kept {
    uint64_t wave;
    uint64_t inode;
};

struct relay {
    /* What Python fills in. */
    uint32_t version;
    int32_t epoll_fd;
    int32_t parent_fd;
    int32_t runner_fd; /* below 0: what comes is returned */
    struct tls tls;    /* of the parent */
    uint64_t rank;
    uint64_t pid;
    uint64_t stream;
    uint64_t last_wave;
    uint64_t confirmed;
    uint64_t number; /* of the last call */
    int64_t room;
    double weight;
    uint32_t names_size;
    uint32_t n_blocks;
    uint32_t n_kept;
    uint32_t n_free;
    struct block blocks[MAX_BLOCKS];
    struct kept kept[MAX_BLOCKS];
    uint64_t free[MAX_BLOCKS];
    uint8_t names[MAX_NAMES];
    /* What it finds. */
    uint32_t n_events;
    uint32_t waves;
    uint32_t frame_at, frame_left; /* bytes of the parent that were read and not dealt with */
    uint32_t result_left;          /* a datagram of the runner, likewise */
    uint32_t unsent_at, unsent;    /* bytes of the last frame that the socket did not take */
    uint32_t journal_size;
    int32_t events[2 * RELAY_MAX_EVENTS];
    uint8_t frame[RELAY_MAX_FRAME];
    uint8_t result[MAX_DATAGRAM];
    uint8_t journal[RELAY_JOURNAL];
    /* Its own. */
    uint32_t busy;
    uint64_t wave, attempt;
};

/* --- journal ------------------------------------------------------------------------------------ */

struct record_head {
    uint32_t kind, size;
    double time;
    uint64_t amount; /* bytes of the value that arrives, its arrays included */
    double seconds;  /* that the runner took */
};

/* Where the bytes of the next record go; append() makes it one. */
static uint8_t *record_space(struct relay *r)
{
    return r->journal + r->journal_size + sizeof(struct record_head);
}

static void append_head(struct relay *r, struct record_head head)
{
    memcpy(r->journal + r->journal_size, &head, sizeof head);
    r->journal_size += (uint32_t)(sizeof head + ((head.size + 7) & ~7u));
}

static void append(struct relay *r, enum record kind, uint32_t size, double time)
{
    append_head(r, (struct record_head){kind, size, time, 0, 0});
}

static void record(struct relay *r, struct record_head head, const uint8_t *data)
{
    memcpy(record_space(r), data, head.size);
    append_head(r, head);
}

/* --- frames ------------------------------------------------------------------------------------- */

struct payload {
    const uint8_t *data;
    uint64_t size;
    uint8_t shared; /* data is a reference to shared memory */
};

struct wave {
    uint64_t stream, number, attempt, confirmed;
    const uint8_t *body;
    uint64_t body_size;
    struct payload payload;
};

/* The bytes of a payload: of one in shared memory, the last number of its reference. */
static uint64_t nbytes(const struct payload *payload)
{
    if (!payload->shared || !payload->size)
        return payload->size;
    struct reader in = {payload->data, payload->data + payload->size, 0};
    uint64_t last = 0;
    must_be(&in, 0x90 + REFERENCE_FIELDS);
    for (int i = 0; i < REFERENCE_FIELDS; i++)
        last = read_uint(&in);
    return in.wrong ? 0 : last;
}

/* The size of the frame that begins here if it is a whole wave, else 0. */
static uint32_t read_wave(const uint8_t *at, uint32_t left, struct wave *wave)
{
    if (left < PREFIX || at[0] != 'S' || at[1] != 'W' || at[2] != 1 || at[3] > 1)
        return 0;
    uint64_t header = little_endian(at + 4, 4), payload = little_endian(at + 8, 8);
    if (header > left || payload > left || PREFIX + header + payload > left)
        return 0;
    struct reader in = {at + PREFIX, at + PREFIX + header, 0};
    must_be(&in, 0x90 + DOWN_FIELDS);
    must_be(&in, DOWN);
    wave->stream = read_uint(&in);
    wave->number = read_uint(&in);
    wave->attempt = read_uint(&in);
    wave->body = read_binary(&in, &wave->body_size);
    wave->confirmed = read_uint(&in);
    must_be(&in, 0x90); /* for all ranks */
    read_uint(&in);     /* version of filters, of which an agent has none */
    if (in.wrong || in.at != in.end)
        return 0;
    wave->payload = (struct payload){in.end, payload, at[3]};
    return (uint32_t)(PREFIX + header + payload);
}

static int fits(struct relay *r, uint64_t body, uint64_t payload)
{
    /* Heads and numbers take less than the difference to RELAY_MAX_FRAME. */
    return body <= INLINE && payload <= INLINE && r->journal_size <= RELAY_JOURNAL / 2;
}

/* Write the answer into the journal and send it; 0 where the parent has no room for it. */
static int relay_answer(struct relay *r, uint64_t wave, uint64_t attempt, const uint8_t *body,
                  uint64_t body_size, struct payload payload, double time)
{
    uint8_t *frame = record_space(r), *out = frame + PREFIX;
    *out++ = 0x90 + UP_FIELDS;
    *out++ = UP;
    out = write_uint(out, r->stream);
    out = write_uint(out, wave);
    out = write_uint(out, attempt);
    *out++ = 0x91;
    *out++ = 0x92;
    out = write_uint(out, r->rank);
    out = write_uint(out, r->rank + 1);
    out = write_double(out, r->weight);
    out = write_binary(out, body, body_size);
    uint64_t header = (uint64_t)(out - frame) - PREFIX;
    write_prefix(frame, header, payload.size, payload.shared);
    out = write_bytes(out, payload.data, payload.size);
    uint32_t size = (uint32_t)(out - frame);
    if (r->room - (int64_t)(size + MESSAGE_COST) <= 0)
        return 0;
    r->room -= size + MESSAGE_COST;
    ssize_t sent = put(r->parent_fd, &r->tls, frame, size);
    if (sent < (ssize_t)size) {
        uint32_t done = sent > 0 ? (uint32_t)sent : 0;
        r->unsent_at = (uint32_t)(frame - r->journal) + done;
        r->unsent = size - done;
    }
    append(r, FRAME_OUT, size, time);
    r->last_wave = wave;
    r->waves++;
    return 1;
}

/* --- to the runner and back --------------------------------------------------------------------- */

static uint8_t *write_bulk(uint8_t *out, const uint8_t *data, uint64_t size)
{
    *out++ = 0x92;
    out = write_binary(out, data, size);
    *out++ = 0xc0;
    return out;
}

/* Memory of results that are confirmed may be used again. */
static int confirm(struct relay *r, uint64_t confirmed)
{
    if (confirmed <= r->confirmed)
        return 1;
    if (r->n_free + r->n_kept > MAX_BLOCKS)
        return 0;
    r->confirmed = confirmed;
    uint32_t left = 0;
    for (uint32_t i = 0; i < r->n_kept; i++) {
        if (r->kept[i].wave <= confirmed)
            r->free[r->n_free++] = r->kept[i].inode;
        else
            r->kept[left++] = r->kept[i];
    }
    r->n_kept = left;
    return 1;
}

/* Hand a wave to the runner; 0 where Python is to do it. */
static int relay_call(struct relay *r, const struct wave *wave, const uint8_t *frame, uint32_t size)
{
    double time = now();
    if (!confirm(r, wave->confirmed))
        return 0;
    uint32_t before = r->journal_size;
    uint64_t amount = wave->body_size + nbytes(&wave->payload);
    record(r, (struct record_head){FRAME_IN, size, time, amount, 0}, frame);
    uint8_t *begin = record_space(r), *out = begin;
    *out++ = 0x90 + CALL_FIELDS;
    out = write_uint(out, r->number + 1);
    out = write_bytes(out, r->names, r->names_size);
    out = write_bulk(out, wave->body, wave->body_size);
    if (wave->payload.shared && wave->payload.size) {
        *out++ = 0x92;
        out = write_binary(out, out, 0);
        out = write_bytes(out, wave->payload.data, wave->payload.size);
    } else {
        out = write_bulk(out, wave->payload.data, wave->payload.size);
    }
    if (r->n_free > 15) {
        r->journal_size = before;
        return 0;
    }
    *out++ = (uint8_t)(0x90 + r->n_free);
    for (uint32_t i = 0; i < r->n_free; i++)
        out = write_uint(out, r->free[i]);
    if (send(r->runner_fd, begin, (size_t)(out - begin), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        r->journal_size = before;
        return 0;
    }
    append(r, CALL_OUT, (uint32_t)(out - begin), time);
    r->n_free = 0;
    r->number++;
    r->busy = 1;
    r->wave = wave->number;
    r->attempt = wave->attempt;
    return 1;
}

/* Where a result lies, as the parent can find it; 0 where its memory is not known here. */
static uint32_t own_reference(struct relay *r, struct reader *in, uint8_t *out, uint64_t *inode)
{
    uint8_t *begin = out;
    must_be(in, 0x90 + REFERENCE_FIELDS);
    read_uint(in); /* the runner's process id and descriptor: this process has its own */
    read_uint(in);
    *inode = read_uint(in);
    uint64_t capacity = read_uint(in), offset = read_uint(in), length = read_uint(in);
    for (uint32_t i = 0; i < r->n_blocks && !in->wrong && length; i++) {
        if (r->blocks[i].inode != *inode)
            continue;
        *out++ = 0x90 + REFERENCE_FIELDS;
        out = write_uint(out, r->pid);
        out = write_uint(out, (uint64_t)r->blocks[i].fd);
        out = write_uint(out, *inode);
        out = write_uint(out, capacity);
        out = write_uint(out, offset);
        out = write_uint(out, length);
        return (uint32_t)(out - begin);
    }
    return 0;
}

/* Send on what the runner made; 0 where Python is to do it. */
static int pass_on(struct relay *r, uint32_t size)
{
    struct reader in = {r->result, r->result + size, 0};
    uint8_t reference[64];
    uint64_t body_size, payload_size, inode = 0;
    must_be(&in, 0x90 + RESULT_FIELDS);
    if (read_uint(&in) != r->number || !r->busy)
        return 0;
    must_be(&in, 0x92);
    const uint8_t *body = read_binary(&in, &body_size);
    must_be(&in, 0xc0);
    must_be(&in, 0x92);
    const uint8_t *data = read_binary(&in, &payload_size);
    struct payload payload = {data, payload_size, 0};
    if (next_is(&in, 0xc0)) {
        must_be(&in, 0xc0);
    } else {
        payload = (struct payload){reference, own_reference(r, &in, reference, &inode), 1};
        if (!payload.size || r->n_kept >= MAX_BLOCKS || r->tls.write)
            return 0; /* another machine cannot map it */
    }
    must_be(&in, 0xcb);
    uint64_t bits = big_endian(&in, 8);
    double seconds;
    memcpy(&seconds, &bits, sizeof seconds);
    must_be(&in, 0xc0); /* no error */
    must_be(&in, 0xc0); /* no transfers */
    if (in.wrong || in.at != in.end || !fits(r, body_size, payload.size))
        return 0;
    double time = now();
    uint32_t before = r->journal_size;
    uint64_t amount = body_size + nbytes(&payload);
    record(r, (struct record_head){RESULT_IN, size, time, amount, seconds}, r->result);
    if (!relay_answer(r, r->wave, r->attempt, body, body_size, payload, time)) {
        r->journal_size = before;
        return 0;
    }
    if (payload.shared)
        r->kept[r->n_kept++] = (struct kept){r->wave, inode};
    r->busy = 0;
    return 1;
}

static int echo(struct relay *r, const struct wave *wave, const uint8_t *frame, uint32_t size)
{
    double time = now();
    uint32_t before = r->journal_size;
    uint64_t amount = wave->body_size + nbytes(&wave->payload);
    record(r, (struct record_head){FRAME_IN, size, time, amount, 0}, frame);
    if (!relay_answer(r, wave->number, wave->attempt, wave->body, wave->body_size, wave->payload, time)) {
        r->journal_size = before;
        return 0;
    }
    return 1;
}

/* --- waiting ------------------------------------------------------------------------------------ */

/* Each returns 0 where Python must go on. */

static int from_parent(struct relay *r)
{
    ssize_t got = get(r->parent_fd, &r->tls, r->frame, sizeof r->frame);
    if (got <= 0)
        return got < 0 && (errno == EAGAIN || errno == EINTR);
    uint32_t at = 0, size = (uint32_t)got;
    while (at < size) {
        struct wave wave;
        uint32_t whole = read_wave(r->frame + at, size - at, &wave);
        int known = whole && !r->busy && !r->unsent && wave.stream == r->stream &&
                    wave.number == r->last_wave + 1 && fits(r, wave.body_size, wave.payload.size);
        if (!known || !(r->runner_fd < 0 ? echo : relay_call)(r, &wave, r->frame + at, whole)) {
            r->frame_at = at;
            r->frame_left = size - at;
            return 0;
        }
        at += whole;
    }
    return 1;
}

static int from_runner(struct relay *r)
{
    ssize_t got = recv(r->runner_fd, r->result, sizeof r->result, MSG_DONTWAIT);
    if (got <= 0)
        return got < 0 && (errno == EAGAIN || errno == EINTR);
    if (!pass_on(r, (uint32_t)got)) {
        r->result_left = (uint32_t)got;
        return 0;
    }
    return 1;
}

/*
 * Wait like epoll_wait for up to `timeout` milliseconds, below 0 for ever; deal with waves
 * meanwhile. Returns when the time is over or there is something for Python to do.
 */
static void relay_wait(struct relay *r, int timeout)
{
    struct epoll_event found[RELAY_MAX_EVENTS];
    double end = now() + 1e-3 * timeout;
    r->n_events = r->waves = r->journal_size = r->busy = 0;
    r->frame_left = r->result_left = r->unsent = 0;
    for (;;) {
        int count = epoll_wait(r->epoll_fd, found, RELAY_MAX_EVENTS, timeout);
        if (count <= 0)
            return; /* a signal is Python's to look at */
        int ours = 1;
        for (int i = 0; i < count; i++) {
            int fd = found[i].data.fd;
            ours &= (fd == r->parent_fd || fd == r->runner_fd) && found[i].events == EPOLLIN;
        }
        if (!ours) {
            for (int i = 0; i < count; i++) {
                r->events[2 * i] = found[i].data.fd;
                r->events[2 * i + 1] = (int32_t)found[i].events;
            }
            r->n_events = (uint32_t)count;
            return;
        }
        for (int i = 0; i < count; i++)
            if (found[i].data.fd == r->runner_fd && !from_runner(r))
                return;
        for (int i = 0; i < count; i++)
            if (found[i].data.fd == r->parent_fd && !from_parent(r))
                return;
        if (r->unsent || (!r->busy && (r->waves >= RELAY_MAX_WAVES || r->journal_size >= RELAY_ENOUGH)))
            return;
        if (timeout >= 0) {
            double left = end - now();
            timeout = left > 0 ? (int)(1e3 * left) + 1 : 0;
        }
    }
}

int sapwood_relay_wait(struct relay *r, int timeout)
{
    let_go();
    relay_wait(r, timeout);
    take_lock();
    return 0;
}

/* The size and the version of struct relay, for those who lay it out themselves. */
uint64_t sapwood_relay_layout(void)
{
    return (uint64_t)RELAY_VERSION << 32 | sizeof(struct relay);
}

/* === repeat: calls of a runner =================================================================== */

/*
 * A call of a runner like the one before it, without the interpreter: from the agent's datagram to
 * the C function and back. repeating.py fills in what such a call is; only the bytes of
 * the state's arrays are new, and those of numbers that the function does not take.
 *
 * Whatever else comes is handed over as it was read; nothing is decided here. Datagrams are what
 * code/runner/calls.py describes, as msgpack.
 */

enum {
    REPEAT_VERSION = 2, /* of struct repeat; repeating.py names the same */
    MAX_NUMBERS = 16, /* arguments in integer registers or on the stack */
    MAX_FLOATS = 8,   /* arguments in floating-point registers */
    MAX_ARRAYS = 64,
    MAX_HEAD = 16 * 1024,  /* of a call: all but its number and the bytes of its arrays */
    MAX_ANSWER = 96 * 1024, /* of an answer: all but its number */
    NUMBER = 16,  /* room for what stands before an answer's head */
    CALL_TAIL = 2,
    ANSWER_TAIL = 12,
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
    double spin;   /* seconds to look for a call before sleeping, where the last came as soon */
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
    if (size < 2 || at[0] != 0x90 + CALL_FIELDS)
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

/*
 * Receive a datagram. A core that sleeps takes tens of microseconds to wake up, longer than the front
 * end takes between two calls: so it is kept awake. Whoever else wants the core has it meanwhile.
 */
static ssize_t repeat_receive(struct repeat *r, uint8_t *datagram, uint64_t capacity)
{
    double begin = now(), end = r->soon ? begin + r->spin : begin;
    for (;;) {
        int flags = now() < end ? MSG_DONTWAIT : 0;
        ssize_t size = recv(r->fd, datagram, capacity, flags);
        if (size >= 0 || errno != EAGAIN) {
            r->soon = now() - begin < r->spin;
            return size;
        }
        sched_yield();
    }
}

/*
 * Each class of arguments has registers of its own, in order, and what does not fit into those for
 * integers stands on the stack, in order, too: so a function gets its own whatever it takes.
 */
static void repeat_call(const struct repeat *r)
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
            other |= at[j] ^ GUARD_BYTE;
    }
    return !other;
}

static int repeat_answer(struct repeat *r, const uint8_t *number, uint32_t bytes, double seconds)
{
    uint8_t *head = r->answer + NUMBER, *begin = head - bytes - 1, *tail = head + r->answer_size;
    *begin = 0x90 + RESULT_FIELDS;
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
 * is handed over, and the interpreter finds the same. The floating-point environment is restored
 * after each call, as code/floating_point.py does.
 */
int64_t sapwood_repeat(struct repeat *r, uint8_t *datagram, uint64_t capacity)
{
    fenv_t modes;
    fegetenv(&modes);
    for (;;) {
        ssize_t size = repeat_receive(r, datagram, capacity);
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
        repeat_call(r);
        fesetenv(&modes);
        __atomic_store_n(record, 0, __ATOMIC_RELEASE);
        if (getpid() != r->pid)
            return FORKED;
        if (!is_intact(r))
            return size;
        double seconds = now() - begin;
        r->times++;
        fflush(NULL); /* what was printed is there before the agent hears that it is done */
        int error = repeat_answer(r, datagram + 1, bytes, seconds);
        if (error)
            return error;
    }
}

/* The size and the version of struct repeat, for those who lay it out themselves; 0 where nobody
 * has looked how arguments are passed. */
uint64_t sapwood_repeat_layout(void)
{
#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__)) && __SIZEOF_POINTER__ == 8
    return (uint64_t)REPEAT_VERSION << 32 | sizeof(struct repeat);
#else
    return 0;
#endif
}
