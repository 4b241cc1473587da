/* Stress test of the runtime's thread pool, built with ThreadSanitizer by tests/backends/test_native_runtime.py; the
 * argument is how often to repeat it.
 *
 * Launches and walks follow one another, with workers that spin, sleep and quit, two callers for one pool, stop words
 * stored by another thread, and interrupts. Jobs write plain memory that the next job reads elsewhere, as kernels do.
 */
#include <pthread.h>
#include <stdbool.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "layout.h"

void prepare(struct pool *pool);
void worker(struct pool *pool, uint64_t self);
void quit(struct pool *pool);
struct interrupts *interrupt_state(void);
int64_t enter(struct pool *pool, const struct frame *frame, const char *const *arrays, stop_word *timed);
int64_t enter_interruptibly(struct pool *pool, const struct frame *frame, const char *const *arrays, stop_word *timed);
int64_t walk(struct pool *pool, struct run *run);
int64_t walk_interruptibly(struct pool *pool, struct run *run);

void machine_pause(void) {}
void machine_fence(void) {}
/* An array is a pointer to its data. */
const uint64_t array_data_offset = 0;

enum { ITEMS = 257, THREADS = 4, LAUNCHES = 400, STEPS = 3 };

struct launch_block {
    struct block head;
    struct slot slots[2];
};

static void check(bool holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "stress: %s\n", what);
        exit(1);
    }
}

/* target[i] = source[mirrored i] + 1, so that each thread reads what others wrote. */
static void mirror(const void *argument, uint64_t first, uint64_t last) {
    const struct launch_block *block = argument;
    const uint64_t *source = (const uint64_t *)block->slots[0].address;
    uint64_t *target = (uint64_t *)block->slots[1].address;
    for (uint64_t item = first; item < last; item++) {
        target[item] = source[ITEMS - 1 - item] + 1;
    }
}

/* Runs until it is stopped. */
static void endless(const void *argument, uint64_t first, uint64_t last) {
    const struct launch_block *block = argument;
    (void)first, (void)last;
    while (atomic_load_explicit(&block->head.stop->reason, memory_order_relaxed) == 0) {
    }
}

struct thread {
    struct pool *pool;
    uint64_t number;
};

static void *help(void *argument) {
    struct thread *thread = argument;
    worker(thread->pool, thread->number);
    return NULL;
}

static void *store_timeout(void *argument) {
    stop_word *stop = argument;
    usleep(2000);
    atomic_store_explicit(&stop->reason, TIMED_OUT, memory_order_relaxed);
    return NULL;
}

static void *store_interrupt(void *argument) {
    (void)argument;
    usleep(2000);
    raise(SIGINT);
    return NULL;
}

static struct frame *frame_of(kernel_function *kernel, uint64_t grain) {
    struct frame *frame = calloc(1, sizeof *frame + sizeof(struct launch_block));
    *frame = (struct frame){kernel, ITEMS, grain, 2, sizeof(struct launch_block) / 8};
    struct launch_block *block = (struct launch_block *)(frame + 1);
    block->slots[0].address = block->slots[1].address = 7;
    block->slots[0].length = block->slots[1].length = ITEMS;
    return frame;
}

static void *call(void *argument) {
    struct pool *pool = argument;
    uint64_t *data[2] = {calloc(ITEMS, 8), calloc(ITEMS, 8)};
    struct frame *frame = frame_of(mirror, 16);
    for (uint64_t launch = 0; launch < LAUNCHES; launch++) {
        const char *arrays[2] = {(const char *)&data[launch % 2], (const char *)&data[1 - launch % 2]};
        check(enter(pool, frame, arrays, NULL) == NONE, "a launch was stopped");
        if (launch % 50 == 0) {
            /* Workers fall asleep. */
            usleep(1000);
        }
    }
    for (uint64_t item = 0; item < ITEMS; item++) {
        check(data[LAUNCHES % 2][item] == LAUNCHES, "a launch lost items");
    }
    free(data[0]), free(data[1]), free(frame);
    return NULL;
}

/* A table of three launches with edits before them, walked until the watched memory reaches a limit. */
static void walk_table(struct pool *pool, bool interruptible) {
    uint64_t data[STEPS + 1][ITEMS] = {0}, shadow[ITEMS] = {0};
    struct launch_block blocks[STEPS];
    struct node nodes[STEPS];
    struct run run = {.nodes = nodes, .count = STEPS, .times = 50};
    struct edit edit = {data[0], data[STEPS], sizeof data[0]};
    uint32_t control[2];
    uint64_t exits[1] = {2};
    for (uint64_t step = 0; step < STEPS; step++) {
        blocks[step] = (struct launch_block){{&run.stop, {ITEMS, 1, 1}},
                                             {{(uintptr_t)data[step], ITEMS}, {(uintptr_t)data[step + 1], ITEMS}}};
        nodes[step] = (struct node){{mirror, &blocks[step], ITEMS, 16, &run.stop}, 1, NULL, 0, step + 1, NULL, NULL};
    }
    nodes[0].edits = &edit, nodes[0].edit_count = 1;
    nodes[1].exits = exits, nodes[1].control = control;
    struct watch watch = {data[STEPS], shadow, sizeof shadow};
    run.watches = &watch, run.watch_count = 1, run.follows = 1;
    atomic_store(&interrupt_state()->arrived, 0);
    if (interruptible && walk_interruptibly(pool, &run) != NOT_BEGUN) {
        run.at = run.passes = run.decisions = 0;
        memset(data, 0, sizeof data), memset(shadow, 0, sizeof shadow);
    }
    check((interruptible ? walk_interruptibly : walk)(pool, &run) == DONE, "a walk did not end");
    check(run.passes == 50 && run.decisions == 50 && data[STEPS][5] == 150, "a walk lost items");
}

static void stop_endless(struct pool *pool, bool interrupted, uint64_t grain) {
    uint64_t *data = calloc(ITEMS, 8);
    const char *arrays[2] = {(const char *)&data, (const char *)&data};
    struct frame *frame = frame_of(endless, grain);
    stop_word stop = {0};
    pthread_t other;
    atomic_store(&interrupt_state()->arrived, 0);
    pthread_create(&other, NULL, interrupted ? store_interrupt : store_timeout, &stop);
    if (interrupted) {
        check(enter_interruptibly(pool, frame, arrays, NULL) == INTERRUPTED, "a launch was not interrupted");
    } else {
        check(enter(pool, frame, arrays, &stop) == TIMED_OUT, "a launch did not time out");
    }
    pthread_join(other, NULL);
    free(data), free(frame);
}

static _Atomic(int) signals;

static void note(int number) { atomic_fetch_add(&signals, number == SIGINT); }

static void rounds(uint64_t threads, uint64_t spins) {
    struct pool *pool = aligned_alloc(64, sizeof *pool + threads * sizeof(struct part));
    memset(pool, 0, sizeof *pool + threads * sizeof(struct part));
    pool->threads = threads, pool->spins = spins;
    prepare(pool);
    pthread_t helpers[THREADS], callers[2];
    struct thread arguments[THREADS];
    for (uint64_t number = 1; number < threads; number++) {
        arguments[number] = (struct thread){pool, number};
        pthread_create(&helpers[number], NULL, help, &arguments[number]);
    }
    call(pool);
    walk_table(pool, false);
    walk_table(pool, true);
    for (int caller = 0; caller < 2; caller++) {
        pthread_create(&callers[caller], NULL, call, pool);
    }
    for (int caller = 0; caller < 2; caller++) {
        pthread_join(callers[caller], NULL);
    }
    stop_endless(pool, false, 16), stop_endless(pool, false, 0);
    stop_endless(pool, true, 16), stop_endless(pool, true, 0);
    /* A launch may be under way when the pool closes. */
    pthread_create(&callers[0], NULL, call, pool);
    usleep(500);
    quit(pool);
    pthread_join(callers[0], NULL);
    for (uint64_t number = 1; number < threads; number++) {
        pthread_join(helpers[number], NULL);
    }
    free(pool);
}

int main(int count, char **arguments) {
    int repeats = count > 1 ? atoi(arguments[1]) : 1;
    signal(SIGINT, note);
    for (int repeat = 0; repeat < repeats; repeat++) {
        for (uint64_t threads = 2; threads <= THREADS; threads++) {
            rounds(threads, 2048);
            rounds(threads, 0);
        }
    }
    check(atomic_load(&signals) == repeats * 2 * 2 * (THREADS - 1), "the previous handler was not called");
    puts("all results are right");
}
