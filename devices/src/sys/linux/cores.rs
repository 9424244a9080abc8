//! How many cores there are.

/// Returns how many cores the processes of a job on this host have among them, as far as one of them can tell: as many as it may
/// use, or as its launcher may, which has more if it gives each process cores of its own.
pub(crate) fn cores() -> usize {
    let own = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    match (allowed(0), allowed(std::os::unix::process::parent_id().cast_signed())) {
        (Some(mine), Some(launchers)) if launchers > mine => launchers,
        _ => own,
    }
}

/// Returns on how many cores a process may run, or with 0 this thread.
fn allowed(process: i32) -> Option<usize> {
    let mut set = [0u64; 128];
    // SAFETY: the set is ours, and as long as is said.
    let done = unsafe { libc::sched_getaffinity(process, size_of_val(&set), set.as_mut_ptr().cast()) };
    (done == 0).then(|| set.iter().map(|word| word.count_ones() as usize).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_was_given_one_core_counts_those_of_its_launcher() {
        let all = allowed(std::os::unix::process::parent_id().cast_signed()).unwrap();
        let pinned = std::thread::spawn(|| {
            let mut set = [0u64; 128];
            // SAFETY: the set is ours, and as long as is said.
            unsafe { libc::sched_getaffinity(0, size_of_val(&set), set.as_mut_ptr().cast()) };
            let first = set.iter().position(|word| *word != 0).unwrap();
            let lowest = set[first] & set[first].wrapping_neg();
            set.fill(0);
            set[first] = lowest;
            // SAFETY: as above; it concerns this thread alone.
            unsafe { libc::sched_setaffinity(0, size_of_val(&set), set.as_ptr().cast()) };
            (allowed(0), cores())
        });
        assert_eq!(pinned.join().unwrap(), (Some(1), all));
    }
}
