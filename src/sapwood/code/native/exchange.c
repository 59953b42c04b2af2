/*
 * One wave of a stream that flows, at the root: the same frame to all children, one frame from
 * each of them. The thread that wants the result does this itself while the thread of the event
 * loop sleeps; session/express/ arms it, and tells the protocol core afterwards what passed.
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
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    VERSION = 7,         /* of struct exchange; session/express/library.py names the same */
    MAX_PEERS = 256,     /* children */
    MAX_FD = 4096,       /* descriptors that are known by their number */
    MAX_EVENTS = 64,
    MAX_WAVES = 512,     /* after which the protocol core is to hear of them */
    MAX_FRAME = 80 * 1024,
    JOURNAL = 512 * 1024,
    MESSAGE_COST = 256,  /* channel.MESSAGE_COST */
    PREFIX = 16,
    MAX_AROUND = PREFIX + 64, /* bytes of a wave's frame beside body and payload */
    NO_PEER = 0xffff,
    ALIGNMENT = 64, /* of a slot */
    ASIDE = 16 * 1024,
    HEARTBEAT = 4, /* tags of messages that can wait until the event loop looks */
    CREDIT = 6,
    RECEIPT = 51,
    ROOT = 0,
    DOWN = 12, /* tags of a wave that goes down, and of its answer */
    UP = 13,
    REQUESTS = 0, /* active.ACTIVE: of these nobody waits for the receipt, but for the answer */
};

enum state { OFF, READY, BUSY, PAUSED, HANDED };

struct peer {
    int32_t fd;
    uint32_t sent;  /* bytes of the frame that its socket took */
    uint32_t got;   /* bytes in its slot */
    uint32_t whole; /* bytes of the frame that is waited for, once it is there */
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
    double awake;   /* seconds to look before sleeping */
    uint8_t head[64];
    uint32_t arrived[MAX_PEERS]; /* peers */
    struct peer peers[MAX_PEERS];
    uint16_t index[MAX_FD];
    uint8_t journal[JOURNAL];
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

static uint64_t little_endian(const uint8_t *at, int size)
{
    uint64_t value = 0;
    for (int i = size - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
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
    if (size < 9 || header[0] != 0x99 || header[1] != RECEIPT || header[2] > 0xcd || !at || at + 2 > size ||
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
    if (ticket == x->ticket && x->waves < MAX_WAVES && size <= MAX_FRAME && x->budget > 0 &&
        x->room - (int64_t)size - MESSAGE_COST > 0 &&
        x->journal_size + entry_size(x, (uint32_t)size) <= JOURNAL)
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
        ssize_t sent = send(x->peers[i].fd, frame, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        x->peers[i].sent = sent > 0 ? (uint32_t)sent : 0;
        all = sent == (ssize_t)size;
    }
    if (!all)
        return hand_over(x);
    advance(x, BUSY, PAUSED);
    return 1;
}

/* Write a number as msgpack does, in as few bytes as it needs; returns where it ends. */
static uint8_t *put_number(uint8_t *at, uint64_t number)
{
    int bytes = number < 0x80 ? 0 : number <= 0xff ? 1 : number <= 0xffff ? 2 : number <= 0xffffffff ? 4 : 8;
    *at++ = !bytes ? (uint8_t)number : bytes == 1 ? 0xcc : bytes == 2 ? 0xcd : bytes == 4 ? 0xce : 0xcf;
    while (bytes--)
        *at++ = (uint8_t)(number >> 8 * bytes);
    return at;
}

static uint8_t *put_bytes(uint8_t *at, const uint8_t *bytes, uint32_t size)
{
    int width = size <= 0xff ? 1 : size <= 0xffff ? 2 : 4;
    *at++ = (uint8_t)(0xc4 + width / 2);
    while (width--)
        *at++ = (uint8_t)(size >> 8 * width);
    memcpy(at, bytes, size);
    return at + size;
}

static void put_little_endian(uint8_t *at, uint64_t value, int size)
{
    for (int i = 0; i < size; i++)
        at[i] = (uint8_t)(value >> 8 * i);
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
    if (body_size > MAX_FRAME || payload_size > MAX_FRAME ||
        !enter(x, ticket, body_size + payload_size + MAX_AROUND))
        return 0;
    uint64_t wave = x->first + x->waves;
    uint8_t *frame = x->journal + x->journal_size + 8, *header = frame + PREFIX, *at = header;
    *at++ = 0x98;
    *at++ = DOWN;
    at = put_number(at, x->stream);
    at = put_number(at, wave);
    *at++ = 0;
    x->head_size = (uint32_t)(at - header);
    memcpy(x->head, header, x->head_size);
    x->head[0] = 0x97;
    x->head[1] = UP;
    at = put_bytes(at, body, (uint32_t)body_size);
    at = put_number(at, wave - 1);
    *at++ = 0x90;
    *at++ = 0;
    memcpy(frame, "SW\1", 4);
    put_little_endian(frame + 4, (uint64_t)(at - header), 4);
    put_little_endian(frame + 8, payload_size, 8);
    memcpy(at, payload, payload_size);
    return begin(x, owner, (uint32_t)(at + payload_size - frame));
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
    ssize_t got = recv(peer->fd, slot + peer->got, x->slot - peer->got, MSG_DONTWAIT);
    if (got <= 0)
        return got < 0 && (errno == EAGAIN || errno == EINTR);
    peer->got += (uint32_t)got;
    return examine(x, number);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/*
 * Look for answers before sleeping: a core that sleeps takes tens of microseconds to wake up. Whoever
 * else wants this core has it meanwhile. Returns what epoll_wait does.
 */
static int look(struct exchange *x, struct epoll_event *found, double end)
{
    x->looked = 1;
    double until = now() + x->awake;
    for (;;) {
        int count = epoll_wait(x->main_fd, found, MAX_EVENTS, 0);
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
int sapwood_exchange_wait(struct exchange *x, uint64_t owner, int timeout)
{
    struct epoll_event found[MAX_EVENTS];
    if (!go_on(x, owner))
        return -1;
    double end = timeout < 0 ? INFINITY : now() + 1e-3 * timeout;
    x->n_arrived = 0;
    while (x->left && !x->n_arrived) {
        int looks = x->awake > 0 && x->left <= x->spare && !x->looked && timeout;
        int count = looks ? look(x, found, end)
                          : epoll_wait(x->main_fd, found, MAX_EVENTS, timeout);
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
    return (uint64_t)VERSION << 32 | sizeof(struct exchange);
}
