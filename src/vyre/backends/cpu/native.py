"""What runs launches in native code? A pool of threads, and a walk over a table of launches, without Python's lock.

``enter`` runs one launch on arrays. ``walk`` runs nodes of a table one after another, each told by the one before, as
often as asked or until what it watches stays as it was. Nodes that are worth it are shared: ``launch`` lets the waiting
threads help, everyone takes a few workgroups at a time, first of a part that is the same in every launch, then of what
others have not done, until none are left; the caller goes on when all are done.
All is written in LLVM IR because it is called with the addresses of kernels, and nothing else needs a C compiler.

Threads wait for a job, and for each other, by looking at a word again and again for some tens of microseconds, giving
way to whoever else wants the processor, and sleep only after that: a grid barrier costs about one microsecond. Who goes
to sleep says so and looks once more; who changes a word looks for sleepers afterwards. So nobody misses a wake-up. A
helper counts itself in before it looks for a job, and the caller withdraws the job before it looks who is counted: so
a job is never touched after its launch has returned.
"""

from __future__ import annotations

import platform
from ctypes import c_int64
from enum import IntEnum
from functools import cache
from threading import Lock
from typing import Final

import numpy as np

from vyre.backends.cpu.compile import Loaded, kept_object_code
from vyre.driver.cache import DiskCache

# A mutex and two conditions, which are smaller than 128 bytes everywhere, then words on cache lines of their own. Parts
# follow, one for each thread.
POOL_BYTES: Final = 640
PART_BYTES: Final = 64
# How often a thread that has done its part looks at another's that does not advance before it helps there: some
# microseconds; and fewer times at one that nobody has begun, whose thread is asleep or has no processor.
_PATIENCE: Final = 256
_DOUBT: Final = 8
# The words in a pool that say how often a waiting thread looks before it sleeps, and how many threads there are.
SPINS_WORD: Final = 51
THREADS_WORD: Final = 52
# Behind the head that every Python object has, an array has its data pointer. Inlined accessors in NumPy's public
# headers read it there, so it cannot move without breaking every compiled extension.
_DATA_OFFSET: Final = object.__basicsize__
_LOADING: Final = Lock()
_LOADED: Final[list[Loaded]] = []


class Ending(IntEnum):
    """Why a walk returned."""

    DONE = 0
    UNCHANGED = 1
    ASKED = 2
    STOPPED = 3


# What a processor does that looks at a word again and again, and what makes it keep what it wrote past the caches in
# order with all that follows; nothing where no name is known, or no more is needed than the order of atomics.
_ARM: Final = ("declare void @llvm.aarch64.isb(i32)", "call void @llvm.aarch64.isb(i32 15)", "")
_MACHINE: Final = {
    "x86_64": (
        "declare void @llvm.x86.sse2.pause()\ndeclare void @llvm.x86.sse.sfence()",
        "call void @llvm.x86.sse2.pause()",
        "call void @llvm.x86.sse.sfence()",
    ),
    "aarch64": _ARM,
    "arm64": _ARM,
}

_TEXT: Final = """
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sched_yield()
declare i32 @memcmp(ptr, ptr, i64)
declare i64 @llvm.umin.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; mutex, start, done; generation, job, leaving, spins, threads; helpers at work; sleeping helpers, whether the caller
; sleeps; and for each thread on a line of its own: how much is taken of its part
%pool = type {
  [128 x i8], [128 x i8], [128 x i8], i64, ptr, i64, i64, i64, [3 x i64], i64, [7 x i64], i64, i64, [14 x i64]
}
%part = type { i64, [7 x i64] }
; kernel, block, total, grain, stop word
%job = type { ptr, ptr, i64, i64, ptr }
; job, whether to share it, edits and their count, next node, next node by control word, control words
%node = type { %job, i64, ptr, i64, i64, ptr, ptr }
; to, from (or null: zeros), bytes
%edit = type { ptr, ptr, i64 }
; memory, its shadow, bytes
%watch = type { ptr, ptr, i64 }
; nodes, their count, node, passes, most passes, watches, their count, whether shadows follow, whether to ask at every
; control word, control words read
%run = type { ptr, i64, i64, i64, i64, ptr, i64, i64, i64, i64 }
; kernel, total, grain, buffers, words of the block, the block
%frame = type { ptr, i64, i64, i64, i64 }

define void @prepare(ptr %pool) {
  %start = getelementptr %pool, ptr %pool, i32 0, i32 1
  %done = getelementptr %pool, ptr %pool, i32 0, i32 2
  call i32 @pthread_mutex_init(ptr %pool, ptr null)
  call i32 @pthread_cond_init(ptr %start, ptr null)
  call i32 @pthread_cond_init(ptr %done, ptr null)
  ret void
}

; Looks at a word until it is (or no longer is) a value; false if that took too long.
define internal i1 @comes(ptr %word, i64 %value, i1 %equal, ptr %pool) {
entry:
  %spins.at = getelementptr %pool, ptr %pool, i32 0, i32 6
  %spins = load i64, ptr %spins.at
  br label %look
look:
  %spun = phi i64 [ 0, %entry ], [ %next, %pause ], [ %next, %yield ]
  %now = load atomic i64, ptr %word acquire, align 8
  %is = icmp eq i64 %now, %value
  %came = icmp eq i1 %is, %equal
  br i1 %came, label %yes, label %wait
wait:
  %more = icmp ult i64 %spun, %spins
  br i1 %more, label %again, label %no
again:
  %next = add i64 %spun, 1
  %some = and i64 %next, 63
  %polite = icmp eq i64 %some, 0
  br i1 %polite, label %yield, label %pause
pause:
  PAUSE
  br label %look
yield:
  call i32 @sched_yield()
  br label %look
yes:
  ret i1 true
no:
  ret i1 false
}

; Runs a range of a job, a grain at a time, as long as nothing stops it.
define internal void @alone(ptr %job) {
entry:
  %kernel = load ptr, ptr %job
  %block.at = getelementptr %job, ptr %job, i32 0, i32 1
  %block = load ptr, ptr %block.at
  %total.at = getelementptr %job, ptr %job, i32 0, i32 2
  %total = load i64, ptr %total.at
  %grain.at = getelementptr %job, ptr %job, i32 0, i32 3
  %grain = load i64, ptr %grain.at
  %stop.at = getelementptr %job, ptr %job, i32 0, i32 4
  %stop = load ptr, ptr %stop.at
  br label %take
take:
  %first = phi i64 [ 0, %entry ], [ %after, %run ]
  %some = icmp ult i64 %first, %total
  br i1 %some, label %look, label %end
look:
  %stopped = load atomic i32, ptr %stop monotonic, align 4
  %going = icmp eq i32 %stopped, 0
  br i1 %going, label %run, label %end
run:
  %after = add i64 %first, %grain
  %last = call i64 @llvm.umin.i64(i64 %after, i64 %total)
  call void %kernel(ptr %block, i64 %first, i64 %last)
  br label %take
end:
  SETTLE
  ret void
}

; Takes grains of the thread's own part until there are none, then those that are left of the others' parts. Memory
; that a thread has worked on is at hand for it in the next launch, and far from others: who takes one grain soon after
; the other is not robbed of them.
define internal void @share(ptr %pool, ptr %job, i64 %self) {
entry:
  %kernel = load ptr, ptr %job
  %block.at = getelementptr %job, ptr %job, i32 0, i32 1
  %block = load ptr, ptr %block.at
  %total.at = getelementptr %job, ptr %job, i32 0, i32 2
  %total = load i64, ptr %total.at
  %grain.at = getelementptr %job, ptr %job, i32 0, i32 3
  %grain = load i64, ptr %grain.at
  %stop.at = getelementptr %job, ptr %job, i32 0, i32 4
  %stop = load ptr, ptr %stop.at
  %threads.at = getelementptr %pool, ptr %pool, i32 0, i32 7
  %threads = load i64, ptr %threads.at
  %parts = getelementptr %pool, ptr %pool, i32 1
  %all = add i64 %total, %grain
  %above = sub i64 %all, 1
  %grains = udiv i64 %above, %grain
  %padded = add i64 %grains, %threads
  %more = sub i64 %padded, 1
  %each = udiv i64 %more, %threads
  %size = mul i64 %each, %grain
  br label %next
next:
  %tried = phi i64 [ 0, %entry ], [ %now, %empty ]
  %left = icmp ult i64 %tried, %threads
  br i1 %left, label %choose, label %end
choose:
  %sum = add i64 %self, %tried
  %beyond = icmp uge i64 %sum, %threads
  %wrapped = sub i64 %sum, %threads
  %number = select i1 %beyond, i64 %wrapped, i64 %sum
  %taken = getelementptr %part, ptr %parts, i64 %number
  %planned = mul i64 %number, %size
  %start = call i64 @llvm.umin.i64(i64 %planned, i64 %total)
  %rest = sub i64 %total, %start
  %length = call i64 @llvm.umin.i64(i64 %size, i64 %rest)
  %own = icmp eq i64 %tried, 0
  br i1 %own, label %see, label %wait
wait:
  %waited = phi i64 [ 0, %choose ], [ %longer, %pause ]
  %before = phi i64 [ 0, %choose ], [ %far, %pause ]
  %far = load atomic i64, ptr %taken monotonic, align 8
  %gone = icmp uge i64 %far, %length
  br i1 %gone, label %empty, label %patience
patience:
  %begun = icmp ne i64 %far, 0
  %looks = select i1 %begun, i64 PATIENCE, i64 DOUBT
  %patient = icmp ult i64 %waited, %looks
  br i1 %patient, label %pause, label %see
pause:
  PAUSE
  %moved = icmp ne i64 %far, %before
  %more.waited = add i64 %waited, 1
  %longer = select i1 %moved, i64 0, i64 %more.waited
  br label %wait
see:
  %seen = load atomic i64, ptr %taken monotonic, align 8
  %open = icmp ult i64 %seen, %length
  br i1 %open, label %take, label %empty
take:
  %offset = atomicrmw add ptr %taken, i64 %grain monotonic
  %inside = icmp ult i64 %offset, %length
  %first = add i64 %start, %offset
  br i1 %inside, label %look, label %empty
look:
  %stopped = load atomic i32, ptr %stop monotonic, align 4
  %going = icmp eq i32 %stopped, 0
  br i1 %going, label %run, label %end
run:
  %after = add i64 %first, %grain
  %last = call i64 @llvm.umin.i64(i64 %after, i64 %total)
  call void %kernel(ptr %block, i64 %first, i64 %last)
  br label %see
empty:
  %now = add i64 %tried, 1
  br label %next
end:
  SETTLE
  ret void
}

define internal void @launch(ptr %pool, ptr %job) {
entry:
  %start = getelementptr %pool, ptr %pool, i32 0, i32 1
  %done = getelementptr %pool, ptr %pool, i32 0, i32 2
  %generation = getelementptr %pool, ptr %pool, i32 0, i32 3
  %current = getelementptr %pool, ptr %pool, i32 0, i32 4
  %working = getelementptr %pool, ptr %pool, i32 0, i32 9
  %sleeping = getelementptr %pool, ptr %pool, i32 0, i32 11
  %waiting = getelementptr %pool, ptr %pool, i32 0, i32 12
  %threads.at = getelementptr %pool, ptr %pool, i32 0, i32 7
  %threads = load i64, ptr %threads.at
  %parts = getelementptr %pool, ptr %pool, i32 1
  br label %clear
clear:
  %number = phi i64 [ 0, %entry ], [ %after, %clear ]
  %taken = getelementptr %part, ptr %parts, i64 %number
  store atomic i64 0, ptr %taken monotonic, align 8
  %after = add i64 %number, 1
  %left = icmp ult i64 %after, %threads
  br i1 %left, label %clear, label %publish
publish:
  store atomic ptr %job, ptr %current seq_cst, align 8
  %old = atomicrmw add ptr %generation, i64 1 seq_cst
  %asleep = load atomic i64, ptr %sleeping seq_cst, align 8
  %awake = icmp eq i64 %asleep, 0
  br i1 %awake, label %work, label %wake
wake:
  call i32 @pthread_mutex_lock(ptr %pool)
  call i32 @pthread_cond_broadcast(ptr %start)
  call i32 @pthread_mutex_unlock(ptr %pool)
  br label %work
work:
  call void @share(ptr %pool, ptr %job, i64 0)
  store atomic ptr null, ptr %current seq_cst, align 8
  %alone = call i1 @comes(ptr %working, i64 0, i1 true, ptr %pool)
  br i1 %alone, label %end, label %sleep
sleep:
  call i32 @pthread_mutex_lock(ptr %pool)
  store atomic i64 1, ptr %waiting seq_cst, align 8
  br label %look
look:
  %busy = load atomic i64, ptr %working seq_cst, align 8
  %idle = icmp eq i64 %busy, 0
  br i1 %idle, label %awoken, label %wait
wait:
  call i32 @pthread_cond_wait(ptr %done, ptr %pool)
  br label %look
awoken:
  store atomic i64 0, ptr %waiting seq_cst, align 8
  call i32 @pthread_mutex_unlock(ptr %pool)
  br label %end
end:
  ret void
}

define void @worker(ptr %pool, i64 %self) {
entry:
  %start = getelementptr %pool, ptr %pool, i32 0, i32 1
  %done = getelementptr %pool, ptr %pool, i32 0, i32 2
  %generation = getelementptr %pool, ptr %pool, i32 0, i32 3
  %current = getelementptr %pool, ptr %pool, i32 0, i32 4
  %leave = getelementptr %pool, ptr %pool, i32 0, i32 5
  %working = getelementptr %pool, ptr %pool, i32 0, i32 9
  %sleeping = getelementptr %pool, ptr %pool, i32 0, i32 11
  %waiting = getelementptr %pool, ptr %pool, i32 0, i32 12
  br label %idle
idle:
  %seen = phi i64 [ 0, %entry ], [ %now, %finished ], [ %now, %tell ]
  %came = call i1 @comes(ptr %generation, i64 %seen, i1 false, ptr %pool)
  br i1 %came, label %new, label %sleep
sleep:
  call i32 @pthread_mutex_lock(ptr %pool)
  %sleepers = atomicrmw add ptr %sleeping, i64 1 seq_cst
  br label %look
look:
  %latest = load atomic i64, ptr %generation seq_cst, align 8
  %old = icmp eq i64 %latest, %seen
  br i1 %old, label %wait, label %awoken
wait:
  call i32 @pthread_cond_wait(ptr %start, ptr %pool)
  br label %look
awoken:
  %others = atomicrmw sub ptr %sleeping, i64 1 seq_cst
  call i32 @pthread_mutex_unlock(ptr %pool)
  br label %new
new:
  %now = load atomic i64, ptr %generation seq_cst, align 8
  %leaving = load atomic i64, ptr %leave seq_cst, align 8
  %stay = icmp eq i64 %leaving, 0
  br i1 %stay, label %join, label %end
join:
  %before = atomicrmw add ptr %working, i64 1 seq_cst
  %job = load atomic ptr, ptr %current seq_cst, align 8
  %over = icmp eq ptr %job, null
  br i1 %over, label %finished, label %help
help:
  call void @share(ptr %pool, ptr %job, i64 %self)
  br label %finished
finished:
  %busy = atomicrmw sub ptr %working, i64 1 seq_cst
  %last = icmp eq i64 %busy, 1
  %waits = load atomic i64, ptr %waiting seq_cst, align 8
  %waited = icmp ne i64 %waits, 0
  %told = and i1 %last, %waited
  br i1 %told, label %tell, label %idle
tell:
  call i32 @pthread_mutex_lock(ptr %pool)
  call i32 @pthread_cond_signal(ptr %done)
  call i32 @pthread_mutex_unlock(ptr %pool)
  br label %idle
end:
  ret void
}

define void @quit(ptr %pool) {
  %start = getelementptr %pool, ptr %pool, i32 0, i32 1
  %generation = getelementptr %pool, ptr %pool, i32 0, i32 3
  %leave = getelementptr %pool, ptr %pool, i32 0, i32 5
  store atomic i64 1, ptr %leave seq_cst, align 8
  %old = atomicrmw add ptr %generation, i64 1 seq_cst
  call i32 @pthread_mutex_lock(ptr %pool)
  call i32 @pthread_cond_broadcast(ptr %start)
  call i32 @pthread_mutex_unlock(ptr %pool)
  ret void
}

; Runs a launch on arrays, which are Python's objects in the order of the frame's buffers. Gives what the stop word says
; in the end, or -1 if an array is not aligned; where the frame's block has an address, it says how they have to be.
define i64 @enter(ptr %pool, ptr %frame, ptr %objects, ptr %timed) {
entry:
  %kernel = load ptr, ptr %frame
  %total.at = getelementptr %frame, ptr %frame, i32 0, i32 1
  %total = load i64, ptr %total.at
  %buffers.at = getelementptr %frame, ptr %frame, i32 0, i32 3
  %buffers = load i64, ptr %buffers.at
  %words.at = getelementptr %frame, ptr %frame, i32 0, i32 4
  %words = load i64, ptr %words.at
  %template = getelementptr %frame, ptr %frame, i32 1
  %block = alloca i64, i64 %words
  %own = alloca i64
  %job = alloca %job
  store i64 0, ptr %own
  %bytes = shl i64 %words, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %block, ptr %template, i64 %bytes, i1 false)
  %untimed = icmp eq ptr %timed, null
  %stop = select i1 %untimed, ptr %own, ptr %timed
  store ptr %stop, ptr %block
  br label %bind
bind:
  %number = phi i64 [ 0, %entry ], [ %next, %aligned ]
  %some = icmp ult i64 %number, %buffers
  br i1 %some, label %address, label %bound
address:
  %object.at = getelementptr ptr, ptr %objects, i64 %number
  %object = load ptr, ptr %object.at
  %data.at = getelementptr i8, ptr %object, i64 DATA_OFFSET
  %data = load i64, ptr %data.at
  %pair = shl i64 %number, 1
  %place = add i64 %pair, 4
  %word = getelementptr i64, ptr %block, i64 %place
  %mask = load i64, ptr %word
  %rest = and i64 %data, %mask
  %fits = icmp eq i64 %rest, 0
  br i1 %fits, label %aligned, label %refuse
aligned:
  store i64 %data, ptr %word
  %next = add i64 %number, 1
  br label %bind
refuse:
  ret i64 -1
bound:
  %alone = icmp eq ptr %pool, null
  br i1 %alone, label %single, label %together
single:
  call void %kernel(ptr %block, i64 0, i64 %total)
  SETTLE
  br label %end
together:
  %grain.at = getelementptr %frame, ptr %frame, i32 0, i32 2
  %grain = load i64, ptr %grain.at
  %block.at = getelementptr %job, ptr %job, i32 0, i32 1
  %job.total = getelementptr %job, ptr %job, i32 0, i32 2
  %job.grain = getelementptr %job, ptr %job, i32 0, i32 3
  %stop.at = getelementptr %job, ptr %job, i32 0, i32 4
  store ptr %kernel, ptr %job
  store ptr %block, ptr %block.at
  store i64 %total, ptr %job.total
  store i64 %grain, ptr %job.grain
  store ptr %stop, ptr %stop.at
  call void @launch(ptr %pool, ptr %job)
  br label %end
end:
  %word.end = load atomic i32, ptr %stop monotonic, align 4
  %result = zext i32 %word.end to i64
  ret i64 %result
}

define internal void @edit(ptr %edits, i64 %count) {
entry:
  br label %look
look:
  %number = phi i64 [ 0, %entry ], [ %next, %done ]
  %some = icmp ult i64 %number, %count
  br i1 %some, label %begin, label %end
begin:
  %here = getelementptr %edit, ptr %edits, i64 %number
  %to = load ptr, ptr %here
  %from.at = getelementptr %edit, ptr %here, i32 0, i32 1
  %from = load ptr, ptr %from.at
  %bytes.at = getelementptr %edit, ptr %here, i32 0, i32 2
  %bytes = load i64, ptr %bytes.at
  %next = add i64 %number, 1
  %nothing = icmp eq ptr %from, null
  br i1 %nothing, label %zero, label %copy
zero:
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 %bytes, i1 false)
  br label %done
copy:
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 false)
  br label %done
done:
  br label %look
end:
  ret void
}

; Whether what is watched is as its shadow is; the shadow follows it, if it should.
define internal i1 @unchanged(ptr %watches, i64 %count, i1 %follows) {
entry:
  br label %look
look:
  %number = phi i64 [ 0, %entry ], [ %next, %seen ]
  %same = phi i1 [ true, %entry ], [ %still, %seen ]
  %some = icmp ult i64 %number, %count
  br i1 %some, label %compare, label %end
compare:
  %here = getelementptr %watch, ptr %watches, i64 %number
  %memory = load ptr, ptr %here
  %shadow.at = getelementptr %watch, ptr %here, i32 0, i32 1
  %shadow = load ptr, ptr %shadow.at
  %bytes.at = getelementptr %watch, ptr %here, i32 0, i32 2
  %bytes = load i64, ptr %bytes.at
  %next = add i64 %number, 1
  %order = call i32 @memcmp(ptr %memory, ptr %shadow, i64 %bytes)
  %equal = icmp eq i32 %order, 0
  %still = and i1 %same, %equal
  %differs = xor i1 %equal, true
  %copied = and i1 %differs, %follows
  br i1 %copied, label %copy, label %seen
copy:
  call void @llvm.memcpy.p0.p0.i64(ptr %shadow, ptr %memory, i64 %bytes, i1 false)
  br label %seen
seen:
  br label %look
end:
  ret i1 %same
}

; Runs nodes from where the run is. Without a pool, nobody helps. An Ending; the run says how far it came.
define i64 @walk(ptr %pool, ptr %run) {
entry:
  %nodes = load ptr, ptr %run
  %count.at = getelementptr %run, ptr %run, i32 0, i32 1
  %count = load i64, ptr %count.at
  %at.at = getelementptr %run, ptr %run, i32 0, i32 2
  %passes.at = getelementptr %run, ptr %run, i32 0, i32 3
  %times.at = getelementptr %run, ptr %run, i32 0, i32 4
  %times = load i64, ptr %times.at
  %watches.at = getelementptr %run, ptr %run, i32 0, i32 5
  %watches = load ptr, ptr %watches.at
  %watched.at = getelementptr %run, ptr %run, i32 0, i32 6
  %watched = load i64, ptr %watched.at
  %follows.at = getelementptr %run, ptr %run, i32 0, i32 7
  %follows.word = load i64, ptr %follows.at
  %follows = icmp ne i64 %follows.word, 0
  %asks.at = getelementptr %run, ptr %run, i32 0, i32 8
  %asks = load i64, ptr %asks.at
  %decisions.at = getelementptr %run, ptr %run, i32 0, i32 9
  %alone = icmp eq ptr %pool, null
  br label %go
go:
  %passes = load i64, ptr %passes.at
  %more = icmp ult i64 %passes, %times
  br i1 %more, label %find, label %all
all:
  ret i64 DONE
find:
  %at = load i64, ptr %at.at
  %inside = icmp ult i64 %at, %count
  br i1 %inside, label %begin, label %passed
begin:
  %node = getelementptr %node, ptr %nodes, i64 %at
  %edits.at = getelementptr %node, ptr %node, i32 0, i32 2
  %edits = load ptr, ptr %edits.at
  %edited.at = getelementptr %node, ptr %node, i32 0, i32 3
  %edited = load i64, ptr %edited.at
  call void @edit(ptr %edits, i64 %edited)
  %control.at = getelementptr %node, ptr %node, i32 0, i32 6
  %control = load ptr, ptr %control.at
  %straight = icmp eq ptr %control, null
  br i1 %straight, label %ready, label %reset
reset:
  store i64 0, ptr %control, align 4
  br label %ready
ready:
  %shared.at = getelementptr %node, ptr %node, i32 0, i32 1
  %shared.word = load i64, ptr %shared.at
  %unshared = icmp eq i64 %shared.word, 0
  %single = or i1 %alone, %unshared
  br i1 %single, label %own, label %together
together:
  call void @launch(ptr %pool, ptr %node)
  br label %after
own:
  call void @alone(ptr %node)
  br label %after
after:
  %stop.at = getelementptr %job, ptr %node, i32 0, i32 4
  %stop = load ptr, ptr %stop.at
  %stopped = load atomic i32, ptr %stop monotonic, align 4
  %going = icmp eq i32 %stopped, 0
  br i1 %going, label %choose, label %stopping
stopping:
  ret i64 STOPPED
choose:
  br i1 %straight, label %follow, label %read
follow:
  %following.at = getelementptr %node, ptr %node, i32 0, i32 4
  %following = load i64, ptr %following.at
  store i64 %following, ptr %at.at
  br label %go
read:
  %before = load i64, ptr %decisions.at
  %decisions = add i64 %before, 1
  store i64 %decisions, ptr %decisions.at
  %order = load i32, ptr %control, align 4
  %asked.at = getelementptr i32, ptr %control, i64 1
  %asked = load i32, ptr %asked.at, align 4
  %somebody = icmp ne i32 %asked, 0
  %always = icmp ne i64 %asks, 0
  %asking = or i1 %somebody, %always
  br i1 %asking, label %ask, label %exit
ask:
  ret i64 ASKED
exit:
  %exits.at = getelementptr %node, ptr %node, i32 0, i32 5
  %exits = load ptr, ptr %exits.at
  %number = zext i32 %order to i64
  %exit.at = getelementptr i64, ptr %exits, i64 %number
  %next = load i64, ptr %exit.at
  store i64 %next, ptr %at.at
  br label %go
passed:
  %done = add i64 %passes, 1
  store i64 %done, ptr %passes.at
  store i64 0, ptr %at.at
  %unwatched = icmp eq ptr %watches, null
  br i1 %unwatched, label %go, label %compare
compare:
  %same = call i1 @unchanged(ptr %watches, i64 %watched, i1 %follows)
  br i1 %same, label %settled, label %go
settled:
  ret i64 UNCHANGED
}
"""


@cache
def arrays_are_known() -> bool:
    """Whether an array's data pointer is where native code looks for it."""
    probe = np.zeros(1)
    found: int = c_int64.from_address(id(probe) + _DATA_OFFSET).value
    return found == probe.ctypes.data


def native(disk: DiskCache) -> Loaded:
    """The functions ``prepare``, ``worker``, ``enter``, ``walk`` and ``quit``, which may be on the disk already."""
    # One for the process, also for threads that begin together: another would be unloaded while its functions run.
    with _LOADING:
        if not _LOADED:
            # Written as it is to run, so that more effort costs half of the first call and gains nothing measurable.
            _LOADED.append(Loaded(kept_object_code(disk, "native", _text(), optimize=False)[0]))
        return _LOADED[0]


def _text() -> str:
    declarations, pause, settle = _MACHINE.get(platform.machine(), ("", "", ""))
    text = declarations + _TEXT.replace("PAUSE", pause).replace("SETTLE", settle)
    text = text.replace("DATA_OFFSET", str(_DATA_OFFSET))
    text = text.replace("PATIENCE", str(_PATIENCE)).replace("DOUBT", str(_DOUBT))
    for ending in Ending:
        text = text.replace(f"ret i64 {ending.name}\n", f"ret i64 {ending.value}\n")
    return text
