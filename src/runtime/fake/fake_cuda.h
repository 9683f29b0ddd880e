/* A CUDA driver for tests, over host memory: the calls that the runtime makes, and what a test may
 * do to them. Built as a shared library that takes libcuda's place (HEADROOM_CUDA_DRIVER,
 * driver_path); the same library is linked by tests for the functions below.
 *
 * Addresses are reserved and pages mapped for real (mmap of a sparse file in memory), so that a
 * block whose page is taken away faults, and one whose page is exchanged loses what was written.
 * Time is a counter: what is queued on a stream is done when the counter has reached it, and the
 * counter moves with every query, record and wait, or when a test says so. Released pages are
 * filled with 0xDB where `poison` is set. Thread-safe, one mutex.
 *
 * The environment sets a device up where nobody else does:
 *   HEADROOM_FAKE_CUDA=devices=2,memory_mib=4096,page_kib=2048,delay=3,host=1,poison=0,virtual=1 */
#ifndef HEADROOM_RUNTIME_FAKE_CUDA_H
#define HEADROOM_RUNTIME_FAKE_CUDA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct headroom_fake_setting {
  int32_t devices;
  int64_t memory_bytes; /* of each */
  int64_t page_bytes;
  int64_t delay;    /* how far behind the queue a stream is, at most; each work draws its own */
  int32_t has_host; /* 0: addresses only, nothing may be touched (for huge devices) */
  int32_t poisons;
  int32_t is_virtual; /* 0: a device without virtual memory management */
  int32_t has_peers;
} headroom_fake_setting;

/* REQUIRES: nothing is allocated. Counters and failures start anew. */
void headroom_fake_set_up(const headroom_fake_setting* setting);

/* The named call (cuMemCreate, ...) fails with `error`, after `after` more that do not, `times`
 * times. */
void headroom_fake_fail(const char* call, int64_t after, int64_t times, int error);
/* From now on cuMemMap fails at these addresses. */
void headroom_fake_fail_at(uint64_t address, int64_t bytes, int error);
/* How often the call was made. */
int64_t headroom_fake_calls(const char* call);
/* Another program takes device memory, or gives it back (negative). */
void headroom_fake_occupy(int device, int64_t bytes);
int64_t headroom_fake_used_bytes(int device);
/* cuMemGetInfo says that so much less is free than can be had; so much more where it is negative,
 * as where MPS limits what a process may have. */
void headroom_fake_understate_free(int device, int64_t bytes);

/* Devices say that handles of memory can be files and reached by GPUDirect; whether the last one
 * that was made was asked to be both. */
void headroom_fake_shareable_handles(int can_be);
int headroom_fake_last_handle_is_shareable(void);
/* To how many devices the last cuMemSetAccess opened memory. */
int headroom_fake_last_access(void);

/* The stream is of this device: events of others are not recorded on it, and waiting for another
 * device does not wait for it. One of which nothing is said is of all. */
void headroom_fake_stream(void* stream, int device);
/* The default stream of a device, as the functions below want it named. */
void* headroom_fake_default_stream(int device);
/* When the call is made the next time, before anything is done, this is called without a lock. */
void headroom_fake_on_call(const char* call, void (*what)(void*), void* context);

/* A kernel on `stream` that touches [address, address + bytes) is queued. */
void headroom_fake_work(void* stream, uint64_t address, int64_t bytes);
/* Is there work that is not done, touches any of these bytes, is not on `stream`, and may come
 * after what is queued there next? */
int headroom_fake_is_touched(void* stream, uint64_t address, int64_t bytes);
/* The program records an event on the stream, and has a stream wait for it: what is queued on that
 * one from now on comes after what was queued on the other before the event. */
int64_t headroom_fake_record(void* stream);
void headroom_fake_wait(void* stream, int64_t event);
/* Time goes on. */
void headroom_fake_advance(int64_t ticks);
/* From now on a stream is so far behind the queue, at most. */
void headroom_fake_set_delay(int64_t ticks);
/* While it is above 0, what a capture forbids (waiting, queries, unmapping) is a violation. */
void headroom_fake_capture(int32_t change);

/* Rules that were broken so far: a page unmapped or freed under work that is not done, an event
 * that was queried during a capture, a handle released twice, ... The text of the first one. */
int64_t headroom_fake_violations(void);
const char* headroom_fake_first_violation(void);

#ifdef __cplusplus
}
#endif

#endif /* HEADROOM_RUNTIME_FAKE_CUDA_H */
