//! Pinning: which processor runs the loop.
//!
//! A loop that stays on one processor keeps its caches, and a machine with few of them can keep
//! the others for what uses the link. Without a wish the kernel moves the loop as it sees fit.

use std::io;

/// Binds the calling thread, and those that it starts later, to one processor.
///
/// # Errors
/// Says which processors there are.
pub fn pin(cpu: u32) -> io::Result<()> {
    // SAFETY: an all-zero set is valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: pointer and size describe `set`.
    crate::linux::sys::check(unsafe { libc::sched_getaffinity(0, size, &raw mut set) })?;
    let bits = size * 8;
    // SAFETY: every number is below the number of bits of a set.
    let usable: Vec<usize> = (0..bits).filter(|&n| unsafe { libc::CPU_ISSET(n, &set) }).collect();
    let wanted = cpu as usize;
    if !usable.contains(&wanted) {
        let known: Vec<String> = usable.iter().map(ToString::to_string).collect();
        let text =
            format!("there is no processor {cpu} for this program: it has {}", known.join(" "));
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    // SAFETY: as above; `wanted` was found in a set.
    let one = unsafe {
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(wanted, &mut one);
        one
    };
    // SAFETY: pointer and size describe `one`.
    crate::linux::sys::check(unsafe { libc::sched_setaffinity(0, size, &raw const one) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.unwrap().trim().to_owned()
    }

    #[test]
    fn a_thread_is_bound_to_what_it_may_use_and_told_otherwise() {
        std::thread::spawn(|| {
            let first = allowed().split([',', '-']).next().unwrap().parse().unwrap();
            let error = pin(4_000_000).unwrap_err().to_string();
            assert!(error.contains("no processor 4000000"), "{error}");
            pin(first).unwrap();
            assert_eq!(allowed(), first.to_string());
        })
        .join()
        .unwrap();
    }
}
