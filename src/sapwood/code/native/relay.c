/*
 * The shortest way of a wave through an agent: from its parent to its runner and back, without
 * the interpreter. activity/relay.py arms it when a stream flows, and afterwards gives the same
 * bytes to the protocol core, which thus knows of everything that passed.
 *
 * It understands one thing: a wave like the one before it, on one stream, whose answer fits.
 * Whatever else comes is handed over unread, or as it was read; nothing is decided here.
 *
 * What is read is the wire format of docs/reference/protocol.md: frames whose header is a msgpack
 * array. Every length is held against the bytes that are there before it is believed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

enum {
    VERSION = 2,              /* of struct relay; relay_library.py names the same */
    MAX_BLOCKS = 16,          /* results whose memory is known */
    MAX_EVENTS = 32,
    MAX_NAMES = 512,          /* procedure and context of a call, encoded */
    MAX_FRAME = 64 * 1024,    /* of the parent */
    MAX_DATAGRAM = 128 * 1024, /* of the runner */
    INLINE = 32 * 1024,       /* what travels in a datagram: calls.INLINE */
    MESSAGE_COST = 256,       /* channel.MESSAGE_COST */
    PREFIX = 16,
    JOURNAL = 1024 * 1024,
    ENOUGH = 128 * 1024,      /* bytes of journal after which Python is to catch up */
    MAX_WAVES = 64,           /* waves after which it is to catch up */
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
    int32_t events[2 * MAX_EVENTS];
    uint8_t frame[MAX_FRAME];
    uint8_t result[MAX_DATAGRAM];
    uint8_t journal[JOURNAL];
    /* Its own. */
    uint32_t busy;
    uint64_t wave, attempt;
};

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

/* --- journal ------------------------------------------------------------------------------------ */

struct record_head {
    uint32_t kind, size;
    double time;
    uint64_t amount; /* bytes of the value that arrives, its arrays included */
    double seconds;  /* that the runner took */
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

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

static uint64_t little_endian(const uint8_t *at, int size)
{
    uint64_t value = 0;
    for (int i = size - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

/* The bytes of a payload: of one in shared memory, the last number of its reference. */
static uint64_t nbytes(const struct payload *payload)
{
    if (!payload->shared || !payload->size)
        return payload->size;
    struct reader in = {payload->data, payload->data + payload->size, 0};
    uint64_t last = 0;
    must_be(&in, 0x96);
    for (int i = 0; i < 6; i++)
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
    must_be(&in, 0x98); /* Down: eight fields, the tag among them */
    must_be(&in, 12);
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
    /* Heads and numbers take less than the difference to MAX_FRAME. */
    return body <= INLINE && payload <= INLINE && r->journal_size <= JOURNAL / 2;
}

/* Write the answer into the journal and send it; 0 where the parent has no room for it. */
static int answer(struct relay *r, uint64_t wave, uint64_t attempt, const uint8_t *body,
                  uint64_t body_size, struct payload payload, double time)
{
    uint8_t *frame = record_space(r), *out = frame + PREFIX;
    *out++ = 0x97;
    *out++ = 13; /* Up */
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
    const uint8_t prefix[4] = {'S', 'W', 1, payload.shared};
    memcpy(frame, prefix, sizeof prefix);
    for (int i = 0; i < 4; i++)
        frame[4 + i] = (uint8_t)(header >> (8 * i));
    for (int i = 0; i < 8; i++)
        frame[8 + i] = (uint8_t)(payload.size >> (8 * i));
    out = write_bytes(out, payload.data, payload.size);
    uint32_t size = (uint32_t)(out - frame);
    if (r->room - (int64_t)(size + MESSAGE_COST) <= 0)
        return 0;
    r->room -= size + MESSAGE_COST;
    ssize_t sent = send(r->parent_fd, frame, size, MSG_DONTWAIT | MSG_NOSIGNAL);
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
static int call(struct relay *r, const struct wave *wave, const uint8_t *frame, uint32_t size)
{
    double time = now();
    if (!confirm(r, wave->confirmed))
        return 0;
    uint32_t before = r->journal_size;
    uint64_t amount = wave->body_size + nbytes(&wave->payload);
    record(r, (struct record_head){FRAME_IN, size, time, amount, 0}, frame);
    uint8_t *begin = record_space(r), *out = begin;
    *out++ = 0x96;
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
    must_be(in, 0x96);
    read_uint(in); /* the runner's process id and descriptor: this process has its own */
    read_uint(in);
    *inode = read_uint(in);
    uint64_t capacity = read_uint(in), offset = read_uint(in), length = read_uint(in);
    for (uint32_t i = 0; i < r->n_blocks && !in->wrong && length; i++) {
        if (r->blocks[i].inode != *inode)
            continue;
        *out++ = 0x96;
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
    must_be(&in, 0x96);
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
        if (!payload.size || r->n_kept >= MAX_BLOCKS)
            return 0;
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
    if (!answer(r, r->wave, r->attempt, body, body_size, payload, time)) {
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
    if (!answer(r, wave->number, wave->attempt, wave->body, wave->body_size, wave->payload, time)) {
        r->journal_size = before;
        return 0;
    }
    return 1;
}

/* --- waiting ------------------------------------------------------------------------------------ */

/* Each returns 0 where Python must go on. */

static int from_parent(struct relay *r)
{
    ssize_t got = recv(r->parent_fd, r->frame, sizeof r->frame, MSG_DONTWAIT);
    if (got <= 0)
        return got < 0 && (errno == EAGAIN || errno == EINTR);
    uint32_t at = 0, size = (uint32_t)got;
    while (at < size) {
        struct wave wave;
        uint32_t whole = read_wave(r->frame + at, size - at, &wave);
        int known = whole && !r->busy && !r->unsent && wave.stream == r->stream &&
                    wave.number == r->last_wave + 1 && fits(r, wave.body_size, wave.payload.size);
        if (!known || !(r->runner_fd < 0 ? echo : call)(r, &wave, r->frame + at, whole)) {
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
void sapwood_relay_wait(struct relay *r, int timeout)
{
    struct epoll_event found[MAX_EVENTS];
    double end = now() + 1e-3 * timeout;
    r->n_events = r->waves = r->journal_size = r->busy = 0;
    r->frame_left = r->result_left = r->unsent = 0;
    for (;;) {
        int count = epoll_wait(r->epoll_fd, found, MAX_EVENTS, timeout);
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
        if (r->unsent || (!r->busy && (r->waves >= MAX_WAVES || r->journal_size >= ENOUGH)))
            return;
        if (timeout >= 0) {
            double left = end - now();
            timeout = left > 0 ? (int)(1e3 * left) + 1 : 0;
        }
    }
}

/* The size and the version of struct relay, for those who lay it out themselves. */
uint64_t sapwood_relay_layout(void)
{
    return (uint64_t)VERSION << 32 | sizeof(struct relay);
}
