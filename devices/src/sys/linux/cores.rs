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
/// first that shares its core. An unknown package or cache is 0; an unknown core is the processor itself.
pub(crate) fn place(cpu: usize) -> [usize; 3] {
    let first = |file: &str, unknown: usize| {
        let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/{file}"));
        let number = text.ok().and_then(|text| text.split(['-', ',', '\n']).next()?.parse().ok());
        number.unwrap_or(unknown)
    };
    [
        first("topology/physical_package_id", 0),
        first("cache/index3/shared_cpu_list", 0),
        first("topology/thread_siblings_list", cpu),
    ]
}
