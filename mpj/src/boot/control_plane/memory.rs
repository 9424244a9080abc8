//! Creates the memory that the ranks of a host share, after a check that enough is available. Without the check, the
//! kernel might kill a process when the memory runs out.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use mpj_devices::Segment;
use mpj_devices::config::{Config, SHM_POOL_MIB};
use rustix::process::Resource;

/// Upper bound of the bytes that a segment's file needs in addition to `Segment::needed`, not counting pools.
const MAX_FILE_OVERHEAD: u64 = 64 << 10;

/// Creates the segment of a host with `ranks` ranks; returns its descriptor, which only these ranks may attach.
///
/// `reserved` is the total size of the segments that this process has created so far, to which this function adds that
/// of the new one. No rank has touched their memory yet, so it still counts as available. `host` names the host in the
/// error, such as " of host a".
///
/// # Errors
/// A text that says how much memory is lacking, where, and what to do.
pub fn host_segment(ranks: u32, config: &Config, host: &str, reserved: &mut u64) -> Result<OwnedFd, String> {
    let needed = Segment::needed(ranks, config) as u64;
    let file_size = needed + MAX_FILE_OVERHEAD;
    *reserved += file_size;
    let total = *reserved;
    let error = |why: &dyn fmt::Display| {
        let sum = match total == file_size {
            true => String::new(),
            false => format!(" ({} MiB with the preceding hosts)", total.div_ceil(1 << 20)),
        };
        let mib = needed.div_ceil(1 << 20);
        format!("cannot allocate {mib} MiB of shared memory for {ranks} ranks{host}{sum}: {why}")
    };
    let too_large = |why: &dyn fmt::Display| {
        error(&format_args!(
            "{why}; or lower MPJ_SHM_FRAGMENTS or MPJ_SHM_RING_KIB, or use another device (MPJ_DEVICES)"
        ))
    };
    if let Some(why) = why_unavailable(file_size, total) {
        return Err(too_large(&why));
    }
    let mut config = config.clone();
    if !fits_address_space(Segment::mapped(ranks, &config) as u64) {
        // The job also runs without pool blocks in the segment, but then it copies messages.
        config.set(&SHM_POOL_MIB, 0).map_err(|e| error(&e))?;
    }
    let segment =
        Segment::create(ranks, &config).map_err(|e| too_large(&format_args!("{e}; free some memory")))?;
    // SAFETY: by the contract of this function, only the ranks of the host attach the duplicate.
    #[expect(unsafe_code, reason = "see above")]
    let fd = unsafe { segment.descriptor() }.try_clone_to_owned().map_err(|e| error(&e))?;
    Ok(fd)
}

/// Returns whether `bytes` are at most a quarter of the limit of a process's address space.
fn fits_address_space(bytes: u64) -> bool {
    let limit = rustix::process::getrlimit(Resource::As).current;
    limit.is_none_or(|limit| bytes <= limit / 4)
}

/// If a file of `file_size` bytes or `total` bytes of memory are unavailable, returns the reason and what to do.
fn why_unavailable(file_size: u64, total: u64) -> Option<String> {
    let is_short = |left: &u64| *left < total;
    if let Some(left) = available().filter(is_short) {
        return Some(format!("{} are available: free some memory", mib(left)));
    }
    let membership = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    if let Some((left, group)) =
        tightest_cgroup(Path::new("/sys/fs/cgroup"), &membership).filter(|(left, _)| is_short(left))
    {
        return Some(format!("the limit of {} leaves {}: raise it", group.display(), mib(left)));
    }
    let limit = rustix::process::getrlimit(Resource::Fsize).current;
    limit
        .filter(|limit| *limit < file_size)
        .map(|limit| format!("the file size limit is {}: raise it (ulimit -f)", mib(limit)))
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// Returns the bytes of memory that this host can provide without swapping.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// The files of a memory cgroup.
struct CgroupFiles {
    limit: &'static str,
    used: &'static str,
    /// The lines of `memory.stat` for the page cache, which the kernel can reclaim.
    cache: [&'static str; 2],
}

const V1: CgroupFiles = CgroupFiles {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cache: ["total_active_file", "total_inactive_file"],
};
const V2: CgroupFiles =
    CgroupFiles { limit: "memory.max", used: "memory.current", cache: ["active_file", "inactive_file"] };

/// Returns the smallest number of available bytes in the memory cgroups of a process, and the folder of that cgroup.
/// `root` is the mount point of cgroups, `membership` the text of `/proc/PID/cgroup`.
fn tightest_cgroup(root: &Path, membership: &str) -> Option<(u64, PathBuf)> {
    let mut groups = Vec::new();
    for line in membership.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let mut add_groups = |root: PathBuf, names: &'static CgroupFiles| {
            let own = root.join(path.trim_start_matches('/'));
            // In a container, the path can be that of the host, while the cgroup of the process is at the root.
            let over = own.ancestors().take_while(|group| group.starts_with(&root));
            groups.extend(over.filter_map(|group| Some((cgroup_available(group, names)?, group.to_owned()))));
        };
        if controllers.is_empty() {
            add_groups(root.to_owned(), &V2);
            add_groups(root.join("unified"), &V2);
        } else if controllers.split(',').any(|controller| controller == "memory") {
            add_groups(root.join("memory"), &V1);
        }
    }
    groups.into_iter().min()
}

/// Returns the bytes that are available below the limit of a cgroup; `None` if it has no limit or cannot be read.
fn cgroup_available(group: &Path, names: &CgroupFiles) -> Option<u64> {
    let number = |name| std::fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    let (limit, used) = (number(names.limit)?, number(names.used)?);
    let stat = std::fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let lines = stat.lines().filter_map(|line| line.split_once(' '));
    let cache = lines
        .filter(|(name, _)| names.cache.contains(name))
        .filter_map(|(_, bytes)| bytes.parse::<u64>().ok());
    Some(limit.saturating_sub(used.saturating_sub(cache.sum())))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, files: &[(&str, &str)]) -> Tree {
            let root = std::env::temp_dir().join(format!("mpj-memory-{}-{name}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, format!("{text}\n")).unwrap();
            }
            Tree(root)
        }

        fn tightest(&self, membership: &str) -> Option<(u64, PathBuf)> {
            let (left, group) = tightest_cgroup(&self.0, membership)?;
            Some((left, group.strip_prefix(&self.0).unwrap().to_owned()))
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn tightest_cgroup_of_the_hierarchy_is_found() {
        let tree = Tree::new(
            "v2",
            &[
                ("job/memory.max", "1000"),
                ("job/memory.current", "400"),
                ("job/memory.stat", "anon 100\nactive_file 200\ninactive_file 50\nfile 290"),
                ("job/step/memory.max", "max"),
                ("job/step/memory.current", "100"),
                ("job/step/task/memory.max", "900"),
                ("job/step/task/memory.current", "100"),
                ("other/memory.max", "1"),
                ("other/memory.current", "1"),
            ],
        );
        assert_eq!(tree.tightest("0::/job/step/task\n"), Some((800, "job/step/task".into())));
        assert_eq!(tree.tightest("0::/job/step\n"), Some((850, "job".into())));
        assert_eq!(tree.tightest("0::/\n"), None);
        assert_eq!(tree.tightest(""), None);
    }

    #[test]
    fn cgroups_of_version_1_are_found() {
        let tree = Tree::new(
            "v1",
            &[
                ("memory/memory.limit_in_bytes", "500"),
                ("memory/memory.usage_in_bytes", "600"),
                ("memory/memory.stat", "active_file 1\ntotal_active_file 30\ntotal_inactive_file 170"),
                ("memory/a/memory.limit_in_bytes", "9223372036854771712"),
                ("memory/a/memory.usage_in_bytes", "10"),
                ("unified/cgroup.procs", ""),
            ],
        );
        assert_eq!(tree.tightest("4:cpu,memory:/a\n0::/\n"), Some((100, "memory".into())));
        assert_eq!(tree.tightest("4:memory:/docker/0123\n"), Some((100, "memory".into())));
        assert_eq!(tree.tightest("4:cpu:/a\n"), None);
    }

    #[test]
    fn one_page_is_available_and_an_exabyte_is_not() {
        assert_eq!(why_unavailable(4096, 4096), None);
        assert!(why_unavailable(4096, 1 << 60).is_some());
    }
}
