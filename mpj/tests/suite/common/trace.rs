//! Reads and checks the trace of a job, and defines a program to trace.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

pub(crate) struct Trace(Vec<Value>);

type Slice<'a> = (u64, u64, &'a str);

fn nanos(time: &Value) -> u64 {
    (time.as_f64().expect("a time") * 1000.0).round() as u64
}

fn text<'a>(event: &'a Value, key: &str) -> &'a str {
    event[key].as_str().unwrap_or_default()
}

fn thread(event: &Value) -> (u64, u64) {
    (event["pid"].as_u64().expect("a rank"), event["tid"].as_u64().expect("a thread"))
}

impl Trace {
    #[track_caller]
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).expect("there is a trace");
        Trace(serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}")))
    }

    fn of_phase(&self, phase: &str) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(move |event| event["ph"] == phase)
    }

    pub(crate) fn ranks(&self) -> BTreeMap<u64, String> {
        let names = self.of_phase("M").filter(|event| event["name"] == "process_name");
        names.map(|event| (event["pid"].as_u64().unwrap(), text(&event["args"], "name").to_owned())).collect()
    }

    pub(crate) fn events(&self, name: &str) -> Vec<&Value> {
        self.0
            .iter()
            .filter(|event| event["name"] == name && (event["ph"] == "X" || event["ph"] == "i"))
            .collect()
    }

    pub(crate) fn ranks_with(&self, name: &str) -> BTreeSet<u64> {
        self.events(name).iter().map(|event| event["pid"].as_u64().unwrap()).collect()
    }

    pub(crate) fn counter(&self, rank: u64, name: &str, of: &str) -> Option<u64> {
        let counts = self.of_phase("C").filter(|event| event["pid"] == rank && event["name"] == name);
        counts.max_by_key(|event| nanos(&event["ts"])).and_then(|event| event["args"][of].as_u64())
    }

    /// Checks that the slices of each thread are nested or disjoint, and that all threads are named.
    #[track_caller]
    pub(crate) fn assert_nested(&self) {
        let mut threads: BTreeMap<(u64, u64), Vec<Slice<'_>>> = BTreeMap::new();
        for slice in self.of_phase("X") {
            let begin = nanos(&slice["ts"]);
            let ends = begin + nanos(&slice["dur"]);
            threads.entry(thread(slice)).or_default().push((begin, ends, text(slice, "name")));
        }
        let named: BTreeSet<_> =
            self.of_phase("M").filter(|event| event["name"] == "thread_name").map(thread).collect();
        for (thread, mut slices) in threads {
            assert!(named.contains(&thread), "{thread:?}");
            slices.sort();
            let mut open: Vec<Slice<'_>> = Vec::new();
            for slice in slices {
                open.retain(|around| around.1 > slice.0);
                for around in &open {
                    assert!(
                        around.0 < slice.0 && slice.1 <= around.1,
                        "{thread:?}: {slice:?} and {around:?}"
                    );
                }
                open.push(slice);
            }
        }
    }

    /// Checks that each message begins once and ends once, each time in a slice on the right rank, and that it does not
    /// end before it begins. Returns the number of messages, by pair.
    #[track_caller]
    pub(crate) fn assert_flows(&self) -> BTreeMap<String, usize> {
        let by_id = |phase: &str| {
            let mut ends = BTreeMap::new();
            for event in self.of_phase(phase) {
                let id = (text(event, "name").to_owned(), event["id"].as_u64().unwrap());
                self.assert_in_a_slice(event);
                assert!(ends.insert(id.clone(), event).is_none(), "{phase} of {id:?} twice");
            }
            ends
        };
        let (begun, ended) = (by_id("s"), by_id("f"));
        assert!(begun.keys().eq(ended.keys()), "begun {:?}, ended {:?}", begun.keys(), ended.keys());
        let mut pairs = BTreeMap::new();
        for ((pair, id), start) in &begun {
            let end = &ended[&(pair.clone(), *id)];
            assert_eq!(*pair, format!("{} to {}", start["pid"], end["pid"]));
            assert!(nanos(&start["ts"]) < nanos(&end["ts"]), "{start} and {end}");
            *pairs.entry(pair.clone()).or_default() += 1;
        }
        pairs
    }

    #[track_caller]
    fn assert_in_a_slice(&self, flow: &Value) {
        let at = nanos(&flow["ts"]);
        let is_around = |slice: &Value| {
            let begin = nanos(&slice["ts"]);
            thread(slice) == thread(flow) && (begin..begin + nanos(&slice["dur"])).contains(&at)
        };
        assert!(self.of_phase("X").any(is_around), "{flow} lies in no slice");
    }
}

pub(crate) struct Folder(pub(crate) std::path::PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mpj-trace-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn files(&self) -> BTreeSet<String> {
        let name =
            |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        std::fs::read_dir(&self.0).unwrap().map(name).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Exchanges messages by each protocol in a ring, expected and unexpected ones, and calls collectives.
pub(crate) fn exchange(world: &mpj::World) -> mpj::Result<()> {
    let (me, size) = (world.rank(), world.size());
    let (left, right) = ((me + size - 1) % size, (me + 1) % size);
    for len in [0, 8, 2000, 300_000] {
        let (mine, mut theirs) = (vec![me as u8; len], vec![0u8; len]);
        let sending = world.isend(mine.clone(), right, 1)?;
        world.probe(left, 1)?;
        world.recv(&mut theirs, left, 1)?;
        sending.wait()?;
        assert!(theirs.iter().all(|byte| usize::from(*byte) == left));
        world.scope(|scope| {
            let receiving = scope.irecv(&mut theirs, left, 2)?;
            world.ssend(&mine, right, 2)?;
            receiving.wait().map(|_| ())
        })?;
    }
    let (mine, mut theirs) = (vec![me as u8; 300_000], vec![0u8; 300_000]);
    world.with_path(mpj::DataPath::ZeroCopy).sendrecv(&mine, right, 3, &mut theirs, left, 3)?;
    let half = world.split(Some(me as u32 % 2), 0)?.expect("a part for each");
    half.barrier()?;
    let mut sums = [0u64; 1000];
    world.allreduce(&[me as u64; 1000], &mut sums, mpj::Op::Sum)?;
    let started = world.start(mpj::coll::allreduce([1u64; 10], [0u64; 10], mpj::Op::Sum))?;
    assert_eq!(started.wait()?.0.1, [size as u64; 10]);
    world.barrier()
}
