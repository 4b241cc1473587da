/* Generated from vyre/backends/cpu/layout.py by scripts/make_native.py. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef void kernel_function(const void *block, uint64_t first, uint64_t last);
typedef void signal_handler(uint64_t number, void *info, void *context);
/* Storage of a mutex or a condition variable, and of what fills a cache line. */
typedef uint64_t opaque;
typedef uint64_t padding;
/* Why a launch has to stop, or 0; polled by kernels. Python writes it as one 64-bit word. */
typedef struct {
    _Atomic(uint32_t) reason;
    uint32_t unused;
} stop_word;

enum reason { NOT_ENTERED = -2, MISALIGNED = -1, NONE = 0, TIMED_OUT = 1, OUT_OF_MEMORY = 2, INTERRUPTED = 3 };

enum ending { DONE = 0, UNCHANGED = 1, ASKED = 2, STOPPED = 3, NOT_BEGUN = 4 };

struct job {
    kernel_function *kernel;
    const void *block;
    uint64_t total;
    uint64_t grain;
    stop_word *stop;
};
_Static_assert(sizeof(struct job) == 40, "size of struct job");
_Static_assert(offsetof(struct job, kernel) == 0, "offset of job.kernel");
_Static_assert(offsetof(struct job, block) == 8, "offset of job.block");
_Static_assert(offsetof(struct job, total) == 16, "offset of job.total");
_Static_assert(offsetof(struct job, grain) == 24, "offset of job.grain");
_Static_assert(offsetof(struct job, stop) == 32, "offset of job.stop");

struct pool {
    opaque mutex[16];
    opaque start[16];
    opaque finish[16];
    _Atomic(uint64_t) generation;
    _Atomic(const struct job *) job;
    _Atomic(uint64_t) closing;
    uint64_t spins;
    uint64_t threads;
    padding pad_0[3];
    _Atomic(uint64_t) working;
    padding pad_1[7];
    _Atomic(uint64_t) sleeping;
    _Atomic(uint64_t) caller_sleeps;
    _Atomic(uint64_t) busy;
    padding pad_2[13];
};
_Static_assert(sizeof(struct pool) == 640, "size of struct pool");
_Static_assert(offsetof(struct pool, mutex) == 0, "offset of pool.mutex");
_Static_assert(offsetof(struct pool, start) == 128, "offset of pool.start");
_Static_assert(offsetof(struct pool, finish) == 256, "offset of pool.finish");
_Static_assert(offsetof(struct pool, generation) == 384, "offset of pool.generation");
_Static_assert(offsetof(struct pool, job) == 392, "offset of pool.job");
_Static_assert(offsetof(struct pool, closing) == 400, "offset of pool.closing");
_Static_assert(offsetof(struct pool, spins) == 408, "offset of pool.spins");
_Static_assert(offsetof(struct pool, threads) == 416, "offset of pool.threads");
_Static_assert(offsetof(struct pool, pad_0) == 424, "offset of pool.pad_0");
_Static_assert(offsetof(struct pool, working) == 448, "offset of pool.working");
_Static_assert(offsetof(struct pool, pad_1) == 456, "offset of pool.pad_1");
_Static_assert(offsetof(struct pool, sleeping) == 512, "offset of pool.sleeping");
_Static_assert(offsetof(struct pool, caller_sleeps) == 520, "offset of pool.caller_sleeps");
_Static_assert(offsetof(struct pool, busy) == 528, "offset of pool.busy");
_Static_assert(offsetof(struct pool, pad_2) == 536, "offset of pool.pad_2");

struct part {
    _Atomic(uint64_t) taken;
    padding pad[7];
};
_Static_assert(sizeof(struct part) == 64, "size of struct part");
_Static_assert(offsetof(struct part, taken) == 0, "offset of part.taken");
_Static_assert(offsetof(struct part, pad) == 8, "offset of part.pad");

struct edit {
    void *target;
    const void *source;
    uint64_t bytes;
};
_Static_assert(sizeof(struct edit) == 24, "size of struct edit");
_Static_assert(offsetof(struct edit, target) == 0, "offset of edit.target");
_Static_assert(offsetof(struct edit, source) == 8, "offset of edit.source");
_Static_assert(offsetof(struct edit, bytes) == 16, "offset of edit.bytes");

struct node {
    struct job job;
    uint64_t shared;
    const struct edit *edits;
    uint64_t edit_count;
    uint64_t following;
    const uint64_t *exits;
    uint32_t *control;
};
_Static_assert(sizeof(struct node) == 88, "size of struct node");
_Static_assert(offsetof(struct node, job) == 0, "offset of node.job");
_Static_assert(offsetof(struct node, shared) == 40, "offset of node.shared");
_Static_assert(offsetof(struct node, edits) == 48, "offset of node.edits");
_Static_assert(offsetof(struct node, edit_count) == 56, "offset of node.edit_count");
_Static_assert(offsetof(struct node, following) == 64, "offset of node.following");
_Static_assert(offsetof(struct node, exits) == 72, "offset of node.exits");
_Static_assert(offsetof(struct node, control) == 80, "offset of node.control");

struct watch {
    const void *memory;
    void *shadow;
    uint64_t bytes;
};
_Static_assert(sizeof(struct watch) == 24, "size of struct watch");
_Static_assert(offsetof(struct watch, memory) == 0, "offset of watch.memory");
_Static_assert(offsetof(struct watch, shadow) == 8, "offset of watch.shadow");
_Static_assert(offsetof(struct watch, bytes) == 16, "offset of watch.bytes");

struct run {
    const struct node *nodes;
    uint64_t count;
    uint64_t at;
    uint64_t passes;
    uint64_t times;
    const struct watch *watches;
    uint64_t watch_count;
    uint64_t follows;
    uint64_t asks;
    uint64_t decisions;
    padding pad_0[10];
    stop_word stop;
    padding pad_1[11];
};
_Static_assert(sizeof(struct run) == 256, "size of struct run");
_Static_assert(offsetof(struct run, nodes) == 0, "offset of run.nodes");
_Static_assert(offsetof(struct run, count) == 8, "offset of run.count");
_Static_assert(offsetof(struct run, at) == 16, "offset of run.at");
_Static_assert(offsetof(struct run, passes) == 24, "offset of run.passes");
_Static_assert(offsetof(struct run, times) == 32, "offset of run.times");
_Static_assert(offsetof(struct run, watches) == 40, "offset of run.watches");
_Static_assert(offsetof(struct run, watch_count) == 48, "offset of run.watch_count");
_Static_assert(offsetof(struct run, follows) == 56, "offset of run.follows");
_Static_assert(offsetof(struct run, asks) == 64, "offset of run.asks");
_Static_assert(offsetof(struct run, decisions) == 72, "offset of run.decisions");
_Static_assert(offsetof(struct run, pad_0) == 80, "offset of run.pad_0");
_Static_assert(offsetof(struct run, stop) == 160, "offset of run.stop");
_Static_assert(offsetof(struct run, pad_1) == 168, "offset of run.pad_1");

struct frame {
    kernel_function *kernel;
    uint64_t total;
    uint64_t grain;
    uint64_t buffers;
    uint64_t block_words;
};
_Static_assert(sizeof(struct frame) == 40, "size of struct frame");
_Static_assert(offsetof(struct frame, kernel) == 0, "offset of frame.kernel");
_Static_assert(offsetof(struct frame, total) == 8, "offset of frame.total");
_Static_assert(offsetof(struct frame, grain) == 16, "offset of frame.grain");
_Static_assert(offsetof(struct frame, buffers) == 24, "offset of frame.buffers");
_Static_assert(offsetof(struct frame, block_words) == 32, "offset of frame.block_words");

struct block {
    stop_word *stop;
    uint64_t grid[3];
};
_Static_assert(sizeof(struct block) == 32, "size of struct block");
_Static_assert(offsetof(struct block, stop) == 0, "offset of block.stop");
_Static_assert(offsetof(struct block, grid) == 8, "offset of block.grid");

struct slot {
    uint64_t address;
    uint64_t length;
};
_Static_assert(sizeof(struct slot) == 16, "size of struct slot");
_Static_assert(offsetof(struct slot, address) == 0, "offset of slot.address");
_Static_assert(offsetof(struct slot, length) == 8, "offset of slot.length");

struct interrupts {
    _Atomic(uint64_t) arrived;
    _Atomic(stop_word *) stop;
    _Atomic(uint64_t) handlers;
    _Atomic(signal_handler *) previous;
};
_Static_assert(sizeof(struct interrupts) == 32, "size of struct interrupts");
_Static_assert(offsetof(struct interrupts, arrived) == 0, "offset of interrupts.arrived");
_Static_assert(offsetof(struct interrupts, stop) == 8, "offset of interrupts.stop");
_Static_assert(offsetof(struct interrupts, handlers) == 16, "offset of interrupts.handlers");
_Static_assert(offsetof(struct interrupts, previous) == 24, "offset of interrupts.previous");
