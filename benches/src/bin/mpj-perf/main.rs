//! `mpj-perf`: what messages, collectives, datatypes, pools and codecs cost. `mpj-perf --help` says how to use it.
//!
//! Exit status: 0 measured; 1 a rank failed; 2 the command line is wrong.

#![allow(clippy::print_stderr, reason = "a program says on stderr why it does not run")]

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use mpj::pool::strategy::{STORAGES, STRATEGIES};
use mpj::{Launch, World};

use perf::Failure;

mod perf;

/// The command line asks for what cannot be run: clap's own code.
const USAGE: u8 = 2;
/// Threads in one process: beyond, they only wait for each other.
const MOST_THREADS: usize = 256;

/// Measures messages, collectives, datatypes, pools and codecs
///
/// Rank 0 prints comma-separated lines, as soon as each is known; lines that start with # are remarks. Ranks are
/// processes when mpjrun has started them and else threads of this process. pingpong (but --what and --threads), coll, ddt,
/// paths, pools and serde draw what they have measured with --svg FILE.
///
/// Examples:
///
///   mpj-perf pingpong --bind                 two ranks, as threads, on a core each
///
///   mpj-perf coll 20 65536 -n 8 --svg c.svg  eight ranks, 20 ms a point, up to 64 KiB, and a picture
///
///   mpjrun -n 2 mpj-perf ddt 3 8             two ranks, as processes
///
///   mpjrun -n 2 --dev shmdev mpj-perf paths --svg shmdev.svg
///                                            buffered and zero-copy messages beside each other
///
///   mpj-perf pools --svg pools.svg           pools beside allocators, in this process alone
///
///   mpj-perf serde                           codecs beside serializers, in this process alone
#[derive(Debug, Parser)]
#[command(name = "mpj-perf", version)]
struct Cli {
    #[command(subcommand)]
    program: Program,
    /// Ranks, as threads of this process [default: 2]; not for pools and serde. Under mpjrun its number holds
    #[arg(short = 'n', value_name = "RANKS", global = true, value_parser = ranks, allow_negative_numbers = true)]
    ranks: Option<usize>,
    /// Keeps each rank on a core of its own, if there are enough on this host, as native launchers do; not for pools and serde
    #[arg(long, global = true)]
    bind: bool,
    /// Says at the end, as a remark, what rank 0 has moved: messages, bytes and copies, by device and way; not for pools and serde
    #[arg(long, global = true)]
    stats: bool,
    /// Draws a picture into this file: medians and their spread, the machine and the date; not for tune, matching and hello
    #[arg(long, value_name = "FILE", global = true)]
    svg: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Program {
    #[command(flatten)]
    Ranks(OfRanks),
    /// Pools of memory beside other allocators, in one process without ranks
    ///
    /// Strategies: magazine (the default pool), buddy (the same without magazines), buddy1 and buddy2 (the mpjbuf
    /// paper's), none. Storages: pages and heap, the paper's direct and indirect buffers. All run in turns; the ratio
    /// compares with the best that is another strategy. Allocators over one region have 256 MiB each. Two threads need
    /// two cores. Takes half a minute.
    ///
    /// POOL,test,strategy,storage,bytes,ns (median),ratio to best other (median of the rounds'; none for baselines);
    /// POOLMEM,mix,strategy,storage,most bytes asked for,most bytes resident,ratio
    Pools(PoolsArgs),
    /// Codecs of objects beside other serializers, in one process without ranks
    ///
    /// Values: 100k f64 (also marked as plain memory, Raw), a mesh of nested vectors, log records. Writing goes into memory
    /// that is there, reading makes a value and drops it. Built with --features comparators it shows bincode 2, bitcode,
    /// rkyv and wincode.
    ///
    /// SERDE,value,codec,kind,way,bytes,ns (median),ratio to best other serde,to best other,to memcpy
    Serde(SerdeArgs),
}

/// The programs that ranks run.
#[derive(Clone, Debug, Subcommand)]
enum OfRanks {
    /// Messages between two ranks: latency, rate and bandwidth
    ///
    /// PP,variant,bytes,iterations,median us,least us,99 % us,MB/s (half round trips; the same, rotating and freshly
    /// written buffers); RATE,bytes,window,M messages/s (median),best, and RATE_BI of both ways at once; BW and
    /// BIBW,bytes,window,MB/s
    ///
    /// With --what instead: WHOLE,what,shape,bytes,median us,least us,ratio (one way, in turns; the ratio is to a slice of as
    /// many bytes, for objects to their parts: encoding, sending a slice, decoding)
    ///
    /// With --threads instead: THREADS,threads,median us,M messages/s (8 bytes; half round trips of each thread, and windows of
    /// 64 of all threads together; the last line is one thread again: from the second thread on a rank takes locks)
    ///
    /// With --pool instead: POOLPP,strategy,storage,bytes,median us,least us,99 % us,MB/s (half round trips, in turns); at the
    /// end POOLPPMEM,strategy,storage,MiB in regions,MiB granted at most,blocks,of them not from the thread's own
    Pingpong(PingpongArgs),
    /// Collectives of any number of ranks
    ///
    /// COLL,operation,ranks,bytes,iterations,median us,least us,us back to back (all of them the slowest rank's; bytes
    /// of a vector, or of a block for each rank)
    Coll(CollArgs),
    /// Derived datatypes: packing, unpacking, and sending between two ranks
    ///
    /// DDT,pattern,bytes,GB/s of mpj's packing,by hand,mpj's unpacking,by hand,memcpy,and the two ratios;
    /// DDTPP,pattern,bytes,us by datatype,by hand,by packing first,of contiguous bytes (median half round trips)
    Ddt(DdtArgs),
    /// By which path messages between two ranks go fastest: through blocks of the pool, or without copies
    ///
    /// Contiguous, strided and indexed elements, and objects, from 64 B on, freshly written and not, by each path in turns, over
    /// the device that the job has (mpjrun --dev).
    ///
    /// MEMCPY,bytes,median us,MB/s; PATH,shape,fresh or same,bytes,path,median us,least us,99 % us,MB/s (half round trips); remarks
    /// at the end say for each shape which path is best from which size on, and whether auto is it
    Paths(PathsArgs),
    /// From which length on the device of the job should move messages without copies: writes a file of parameters
    ///
    /// Two ranks, over the device that the job has (mpjrun --dev): once for each device. The file is read by MPJ_CONF=FILE.
    ///
    /// TUNE,device,bytes,us as the device is set and us without copies, freshly written,the same two, unmodified,ratio
    Tune(TuneArgs),
    /// Many messages that meet their receives in order and in reverse
    ///
    /// MATCH,queue,order,messages,median us,least us,ns a message (queue: the receives were posted, or the messages came
    /// unexpected; order: of the receives against that of the messages, reverse_any from any source)
    Matching(MatchingArgs),
    /// Starts and ends a job, nothing else
    Hello,
}

#[derive(Args, Clone, Debug)]
struct PoolsArgs {
    /// What to measure [default: all]
    #[arg(value_enum)]
    tests: Vec<perf::pools::Test>,
    /// Prints comma-separated lines instead of tables
    #[arg(long)]
    csv: bool,
    /// Milliseconds that a contender runs in a round
    #[arg(long, default_value = "2", value_parser = milliseconds, allow_negative_numbers = true)]
    ms: f64,
    /// Rounds
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1001))]
    rounds: u16,
    /// Prints what one contender has in memory
    #[arg(long, hide = true)]
    memory_of: Option<String>,
}

#[derive(Args, Clone, Copy, Debug)]
struct SerdeArgs {
    /// Prints comma-separated lines instead of tables
    #[arg(long)]
    csv: bool,
    /// Milliseconds that a codec runs in a round
    #[arg(long, default_value = "10", value_parser = milliseconds, allow_negative_numbers = true)]
    ms: f64,
    /// Rounds
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u16).range(1..=1001))]
    rounds: u16,
}

#[derive(Args, Clone, Debug)]
struct PingpongArgs {
    /// Milliseconds for each point
    #[arg(default_value = "200", value_parser = milliseconds, allow_negative_numbers = true)]
    ms: f64,
    /// The largest message in bytes
    #[arg(default_value_t = 16_777_216)]
    max_bytes: usize,
    /// MiB of memory in which buffers rotate, for each rank twice
    #[arg(default_value_t = 128)]
    pool_mib: usize,
    /// Messages that are sent and received whole, instead: several, separated by commas
    #[arg(long, value_enum, value_delimiter = ',')]
    what: Vec<perf::whole::What>,
    /// Threads of a rank that send and receive at once, each with a communicator of its own, instead: one, and more and more up
    /// to this number
    #[arg(long, conflicts_with = "what", value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: Option<u16>,
    /// Pools of whose blocks messages are made and received into, instead: strategies, several separated by commas
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["what", "threads"], value_parser = PossibleValuesParser::new(STRATEGIES))]
    pool: Vec<String>,
    /// What lies under these pools: several separated by commas [default: pages]
    #[arg(long, value_delimiter = ',', requires = "pool", value_parser = PossibleValuesParser::new(STORAGES))]
    storage: Vec<String>,
}

#[derive(Args, Clone, Copy, Debug)]
struct CollArgs {
    /// Milliseconds for each point
    #[arg(default_value = "100", value_parser = milliseconds, allow_negative_numbers = true)]
    ms: f64,
    /// The largest vector or block in bytes
    #[arg(default_value_t = 1_048_576)]
    max_bytes: usize,
}

#[derive(Args, Clone, Copy, Debug)]
struct DdtArgs {
    /// Milliseconds for each figure of packing
    #[arg(default_value = "8", value_parser = milliseconds, allow_negative_numbers = true)]
    pack_ms: f64,
    /// Milliseconds for each figure of sending
    #[arg(default_value = "30", value_parser = milliseconds, allow_negative_numbers = true)]
    send_ms: f64,
}

#[derive(Args, Clone, Copy, Debug)]
struct PathsArgs {
    /// Milliseconds for each path of each point
    #[arg(default_value = "40", value_parser = milliseconds, allow_negative_numbers = true)]
    ms: f64,
    /// The largest message in bytes
    #[arg(default_value_t = 16_777_216)]
    max_bytes: usize,
}

#[derive(Args, Clone, Debug)]
struct TuneArgs {
    /// The file; parameters of others in it stay
    file: PathBuf,
    /// Milliseconds for each point
    #[arg(default_value = "40", value_parser = milliseconds, allow_negative_numbers = true)]
    ms: f64,
}

#[derive(Args, Clone, Copy, Debug)]
struct MatchingArgs {
    /// The most messages
    #[arg(default_value_t = 100_000)]
    messages: usize,
}

impl OfRanks {
    /// Returns why it cannot be run with so many ranks, if so.
    fn refuse(&self, ranks: usize) -> Option<String> {
        match self {
            OfRanks::Pingpong(_) if ranks != 2 => Some(format!("pingpong needs 2 ranks, not {ranks}")),
            OfRanks::Matching(_) if ranks != 2 => Some(format!("matching needs 2 ranks, not {ranks}")),
            OfRanks::Tune(_) if ranks != 2 => Some(format!("tune needs 2 ranks, not {ranks}")),
            OfRanks::Paths(_) if ranks != 2 => Some(format!("paths needs 2 ranks, not {ranks}")),
            OfRanks::Paths(PathsArgs { max_bytes, .. }) if *max_bytes < 64 => {
                Some("the smallest message of paths has 64 bytes".to_owned())
            }
            OfRanks::Pingpong(args) if !args.pool.is_empty() => {
                perf::pooled::refuse(&args.pool, &args.storages())
            }
            OfRanks::Pingpong(args) => args.options().refuse(),
            _ => None,
        }
    }

    fn run(&self, world: &World, svg: Option<&Path>) -> Result<(), Failure> {
        match self {
            OfRanks::Pingpong(PingpongArgs { what, ms, max_bytes, .. }) if !what.is_empty() => {
                perf::whole::run(world, what, *ms, *max_bytes)
            }
            OfRanks::Pingpong(PingpongArgs { threads: Some(threads), ms, .. }) => {
                perf::threads::run(world, *ms, usize::from(*threads))
            }
            OfRanks::Pingpong(args) if !args.pool.is_empty() => {
                let PingpongArgs { pool, ms, max_bytes, .. } = args;
                perf::pooled::run(world, (pool, &args.storages()), *ms, *max_bytes, svg)
            }
            OfRanks::Pingpong(args) => perf::pingpong::run(world, args.options(), svg),
            OfRanks::Coll(args) => perf::coll::run(world, args.ms, args.max_bytes, svg),
            OfRanks::Ddt(args) => perf::ddt::run(world, args.pack_ms, args.send_ms, svg),
            OfRanks::Paths(args) => perf::paths::run(world, args.ms, args.max_bytes, svg),
            OfRanks::Tune(args) => perf::paths::tune::run(world, args.ms, &args.file),
            OfRanks::Matching(args) => perf::matching::run(world, args.messages),
            OfRanks::Hello => Ok(()),
        }
    }
}

impl PoolsArgs {
    fn options(self, svg: Option<PathBuf>) -> perf::pools::Options {
        let all = perf::pools::Test::value_variants();
        let tests = if self.tests.is_empty() { all.to_vec() } else { self.tests };
        perf::pools::Options { tests, ms: self.ms, rounds: self.rounds.into(), csv: self.csv, svg }
    }
}

impl PingpongArgs {
    fn storages(&self) -> Vec<String> {
        if self.storage.is_empty() { vec!["pages".to_owned()] } else { self.storage.clone() }
    }

    fn options(&self) -> perf::pingpong::Options {
        perf::pingpong::Options { ms: self.ms, max_bytes: self.max_bytes, pool_mib: self.pool_mib }
    }
}

fn main() -> ExitCode {
    let Cli { program, ranks, bind, stats, svg } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    if let Some(why) = svg.as_ref().and_then(|path| undrawable(&program, path)) {
        return refuse(&why);
    }
    let program = match program {
        Program::Ranks(program) => program,
        Program::Pools(PoolsArgs { memory_of: Some(chosen), .. }) => {
            return alone(ranks, bind || stats, || perf::pools::print_memory(&chosen));
        }
        Program::Pools(args) => {
            return alone(ranks, bind || stats, || perf::pools::run(&args.options(svg)));
        }
        Program::Serde(SerdeArgs { csv, ms, rounds }) => {
            let options = perf::serde::Options { csv, ms, rounds: rounds.into(), svg };
            return alone(ranks, bind || stats, || perf::serde::run(&options));
        }
    };
    if let Some(why) = ranks.and_then(|ranks| program.refuse(ranks)) {
        return refuse(&why);
    }
    let refused = AtomicBool::new(false);
    let ended = mpj::run_with(Launch::threads(ranks.unwrap_or(2)), |world: World| {
        let size = world.size();
        let why = match ranks {
            Some(asked) if asked != size => {
                Some(format!("-n {asked}, but the launcher started {size} ranks"))
            }
            _ => program.refuse(size),
        };
        let Some(why) = why else {
            if bind {
                perf::cores::bind(&world);
            }
            let outcome = program.run(&world, svg.as_deref());
            return outcome.and_then(|()| if stats { perf::report::stats(&world) } else { Ok(()) });
        };
        refused.store(true, Ordering::Relaxed);
        if world.rank() == 0 {
            refuse(&why);
        }
        Ok(())
    });
    if refused.into_inner() { ExitCode::from(USAGE) } else { ended }
}

/// Returns why a program cannot draw its picture, if so: before it has measured for long.
fn undrawable(program: &Program, path: &Path) -> Option<String> {
    match program {
        Program::Ranks(OfRanks::Hello) => return Some("--svg: hello measures nothing".to_owned()),
        Program::Ranks(OfRanks::Matching(_)) => return Some("--svg does not draw matching".to_owned()),
        Program::Ranks(OfRanks::Tune(_)) => return Some("--svg does not draw tune; paths does".to_owned()),
        Program::Ranks(OfRanks::Pingpong(args)) if !args.what.is_empty() || args.threads.is_some() => {
            return Some("--svg draws pingpong without --what and --threads".to_owned());
        }
        Program::Pools(args) if !args.tests.is_empty() && !args.tests.contains(&perf::pools::Test::One) => {
            return Some("--svg draws the test one, which is not among those named".to_owned());
        }
        _ => {}
    }
    // What is there stays until the picture is drawn.
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.err().map(|why| format!("{}: {why}", path.display()))
}

/// Runs a program that has no ranks.
fn alone(ranks: Option<usize>, binds_or_counts: bool, run: impl FnOnce() -> Result<(), Failure>) -> ExitCode {
    if ranks.is_some() || binds_or_counts {
        return refuse("-n, --bind and --stats are for programs of ranks");
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("mpj-perf: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Reads a number of ranks.
fn ranks(text: &str) -> Result<usize, String> {
    let ranks: usize = text.parse().map_err(|_| "a number of ranks is expected".to_owned())?;
    match ranks {
        0 => Err("a job has at least 1 rank".to_owned()),
        1..=MOST_THREADS => Ok(ranks),
        _ => {
            Err(format!("at most {MOST_THREADS} ranks in one process; for more use mpjrun, without -n here"))
        }
    }
}

/// Reads a time.
fn milliseconds(text: &str) -> Result<f64, String> {
    const HOUR: f64 = 3.6e6;
    match text.parse::<f64>() {
        Ok(ms) if ms > HOUR => Err("more than an hour for each figure is not meant".to_owned()),
        Ok(ms) if ms > 0.0 => Ok(ms),
        _ => Err("a number of milliseconds above 0 is expected".to_owned()),
    }
}

/// Prints one line that says why nothing is run.
fn refuse(why: &str) -> ExitCode {
    eprintln!("mpj-perf: {why}");
    ExitCode::from(USAGE)
}

/// Shows help where it was asked for, else the complaint of clap on one line.
fn usage(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Nowhere to tell of a closed output.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => refuse(
            "name a program: pingpong, coll, ddt, paths, tune, matching, pools, serde or hello (mpj-perf --help says more)",
        ),
        _ => {
            let complaint = error.render().to_string();
            let lines: Vec<&str> =
                complaint.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
            let line = lines.join(" ");
            refuse(line.strip_prefix("error: ").unwrap_or(&line))
        }
    }
}
