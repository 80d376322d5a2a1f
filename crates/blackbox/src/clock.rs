//! Clocks that may be read anywhere, a signal handler included.

#[inline]
fn read(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` outlives the call; clock_gettime is async-signal-safe.
    unsafe { libc::clock_gettime(clock, &mut now) };
    (now.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(now.tv_nsec as u64)
}

/// Nanoseconds that never jump: durations and order are taken from this one.
#[inline]
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Wall time, only to be shown to people.
pub fn unix_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}
