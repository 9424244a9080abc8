//! The logical processors on which a thread may run, and their locations.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

pub(crate) fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// Restricts this thread to some logical processors. Makes one system call and does not allocate.
pub(crate) fn run_on(cpus: impl Iterator<Item = usize>) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.filter(|cpu| *cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(cpu));
    Ok(sched_setaffinity(None, &set)?)
}

/// Returns the NUMA node of a logical processor; 0 if it is unknown.
pub(crate) fn numa_node(cpu: usize) -> usize {
    let files =
        std::fs::read_dir(format!("/sys/devices/system/cpu/cpu{cpu}")).into_iter().flatten().flatten();
    let number = |file: std::fs::DirEntry| file.file_name().to_str()?.strip_prefix("node")?.parse().ok();
    files.filter_map(number).next().unwrap_or(0)
}

/// Returns the location of a logical processor: its package, the first processor that shares its L3 cache, and the
/// first that shares its core. If the system does not report a cache, as in many virtual machines, the cache has the
/// number of the package. An unknown package is 0; an unknown core is the processor itself.
pub(crate) fn place(cpu: usize) -> [usize; 3] {
    place_by(cpu, |file| std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/{file}")).ok())
}

fn place_by(cpu: usize, read: impl Fn(&str) -> Option<String>) -> [usize; 3] {
    let first = |file: &str| read(file)?.split(['-', ',', '\n']).next()?.parse().ok();
    let package = first("topology/physical_package_id").unwrap_or(0);
    let cache = first("cache/index3/shared_cpu_list").unwrap_or(package);
    [package, cache, first("topology/thread_siblings_list").unwrap_or(cpu)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreported_caches_of_two_packages_differ() {
        let file = |name: &str| match name {
            "topology/physical_package_id" => Some("1\n"),
            "topology/thread_siblings_list" => Some("12-13\n"),
            _ => None,
        };
        assert_eq!(place_by(13, |name| file(name).map(String::from)), [1, 1, 12]);
        let with_cache = |name: &str| if name.starts_with("cache/") { Some("8,9\n") } else { file(name) };
        assert_eq!(place_by(13, |name| with_cache(name).map(String::from)), [1, 8, 12]);
        assert_eq!(place_by(13, |_| None), [0, 0, 13]);
    }
}
