//! The command line.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};
use mpj::config::Config;
use mpj::devices::cores::{BIND, Bind};
use mpj::pool::strategy::{STORAGES, STRATEGIES};

use crate::perf;

/// The maximum number of threads in one process: with more, they only wait for each other.
const MOST_THREADS: usize = 256;

/// Measures messages, collectives, datatypes, pools and codecs
///
/// Rank 0 prints comma-separated lines, as soon as each is known; lines that start with # are remarks. Ranks are
/// processes when mpjrun has started them and else threads of this process. Where there are enough cores each rank is bound
/// to its own; remarks and pictures say so. mpj-perf PROGRAM --help lists the options of a program.
///
/// Examples:
///
///   mpj-perf pingpong --svg p.svg            two ranks, as threads, and a picture
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
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) program: Program,
}

/// How many ranks.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Ranks {
    /// Ranks, as threads of this process [default: 2]. Under mpjrun its number holds
    #[arg(short = 'n', value_name = "RANKS", value_parser = ranks, allow_negative_numbers = true)]
    pub(crate) ranks: Option<usize>,
}

/// How ranks run that measure.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Measuring {
    #[command(flatten)]
    pub(crate) ranks: Ranks,
    /// Which cores each rank that is a thread runs on: auto (an equal share of the cores, if there are enough for all ranks),
    /// core (one core), or none (any); mpjrun --bind says it for processes [default: MPJ_BIND, or auto]
    #[arg(long, value_name = "CORES", value_parser = bind)]
    pub(crate) bind: Option<Bind>,
    /// Says at the end, as remarks, what rank 0 has moved: messages, bytes and copies, by device and way
    #[arg(long)]
    pub(crate) stats: bool,
}

/// Where to draw.
#[derive(Args, Clone, Debug)]
pub(crate) struct Drawing {
    /// Draws a picture into this file: medians and their spread, the machine and the date
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Program {
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
pub(crate) enum OfRanks {
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
    /// Two ranks, over the device that the job has (mpjrun --dev): once for each device. The file is read by MPJ_CONFIG_FILE=FILE.
    ///
    /// TUNE,device,bytes,us as the device is set and us without copies, freshly written,the same two, unmodified,ratio
    Tune(TuneArgs),
    /// Many messages that meet their receives in order and in reverse
    ///
    /// MATCH,queue,order,messages,median us,least us,ns a message (queue: the receives were posted, or the messages came
    /// unexpected; order: of the receives against that of the messages, reverse_any from any source)
    Matching(MatchingArgs),
    /// Starts and ends a job, nothing else
    Hello(Ranks),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PoolsArgs {
    /// What to measure [default: all]
    #[arg(value_enum)]
    pub(crate) tests: Vec<perf::pools::Test>,
    /// Prints comma-separated lines instead of tables
    #[arg(long)]
    pub(crate) csv: bool,
    /// Milliseconds that a contender runs in a round
    #[arg(long, default_value = "2", value_parser = milliseconds, allow_negative_numbers = true)]
    pub(crate) ms: f64,
    /// Rounds
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1001))]
    pub(crate) rounds: u16,
    /// Prints what one contender has in memory
    #[arg(long, hide = true)]
    pub(crate) memory_of: Option<String>,
    #[command(flatten)]
    pub(crate) draw: Drawing,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct SerdeArgs {
    /// Prints comma-separated lines instead of tables
    #[arg(long)]
    pub(crate) csv: bool,
    /// Milliseconds that a codec runs in a round
    #[arg(long, default_value = "10", value_parser = milliseconds, allow_negative_numbers = true)]
    pub(crate) ms: f64,
    /// Rounds
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u16).range(1..=1001))]
    pub(crate) rounds: u16,
    #[command(flatten)]
    pub(crate) draw: Drawing,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PingpongArgs {
    /// Milliseconds for each point
    #[arg(default_value = "200", value_parser = milliseconds, allow_negative_numbers = true)]
    pub(crate) ms: f64,
    /// The largest message in bytes
    #[arg(default_value_t = 16_777_216)]
    pub(crate) max_bytes: usize,
    /// MiB of memory in which buffers rotate, for each rank twice
    #[arg(default_value_t = 128)]
    pub(crate) pool_mib: usize,
    /// Messages that are sent and received whole, instead: several, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', conflicts_with = "svg")]
    pub(crate) what: Vec<perf::payloads::What>,
    /// Threads of a rank that send and receive at once, each with a communicator of its own, instead: one, and more and more up
    /// to this number
    #[arg(long, conflicts_with_all = ["what", "svg"], value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) threads: Option<u16>,
    /// Pools of whose blocks messages are made and received into, instead: strategies, several separated by commas
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["what", "threads"], value_parser = PossibleValuesParser::new(STRATEGIES))]
    pub(crate) pool: Vec<String>,
    /// What lies under these pools: several separated by commas [default: pages]
    #[arg(long, value_delimiter = ',', requires = "pool", value_parser = PossibleValuesParser::new(STORAGES))]
    pub(crate) storage: Vec<String>,
    #[command(flatten)]
    pub(crate) run: Measuring,
    #[command(flatten)]
    pub(crate) draw: Drawing,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct CollArgs {
    /// Milliseconds for each point
    #[arg(default_value = "100", value_parser = milliseconds, allow_negative_numbers = true)]
    pub(crate) ms: f64,
    /// The largest vector or block in bytes
    #[arg(default_value_t = 1_048_576)]
    pub(crate) max_bytes: usize,
    #[command(flatten)]
    pub(crate) run: Measuring,
    #[command(flatten)]
    pub(crate) draw: Drawing,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct DdtArgs {
    /// Milliseconds for each figure of packing
    #[arg(default_value = "8", value_parser = milliseconds, allow_negative_numbers = true)]
    pub(crate) pack_ms: f64,
    /// Milliseconds for each figure of sending
    #[arg(default_value = "30", value_parser = milliseconds, allow_negative_numbers = true)]
    pub(crate) send_ms: f64,
    #[command(flatten)]
    pub(crate) run: Measuring,
    #[command(flatten)]
    pub(crate) draw: Drawing,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PathsArgs {
    /// Milliseconds for each path of each point
    #[arg(default_value = "40", value_parser = milliseconds, allow_negative_numbers = true)]
    pub(crate) ms: f64,
    /// The largest message in bytes
    #[arg(default_value_t = 16_777_216)]
    pub(crate) max_bytes: usize,
    #[command(flatten)]
    pub(crate) run: Measuring,
    #[command(flatten)]
    pub(crate) draw: Drawing,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct TuneArgs {
    /// The file; parameters of others in it stay
    pub(crate) file: PathBuf,
    /// Milliseconds for each point
    #[arg(default_value = "40", value_parser = milliseconds, allow_negative_numbers = true)]
    pub(crate) ms: f64,
    #[command(flatten)]
    pub(crate) run: Measuring,
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct MatchingArgs {
    /// The most messages
    #[arg(default_value_t = 100_000)]
    pub(crate) messages: usize,
    #[command(flatten)]
    pub(crate) run: Measuring,
}

impl OfRanks {
    /// Returns the options for its ranks; `hello` measures nothing.
    pub(crate) fn measuring(&self) -> Measuring {
        match self {
            OfRanks::Pingpong(PingpongArgs { run, .. })
            | OfRanks::Coll(CollArgs { run, .. })
            | OfRanks::Ddt(DdtArgs { run, .. })
            | OfRanks::Paths(PathsArgs { run, .. })
            | OfRanks::Tune(TuneArgs { run, .. })
            | OfRanks::Matching(MatchingArgs { run, .. }) => *run,
            OfRanks::Hello(ranks) => Measuring { ranks: *ranks, bind: Some(Bind::None), stats: false },
        }
    }
}

impl Program {
    /// Returns the file for the picture, if one was requested.
    pub(crate) fn svg(&self) -> Option<&PathBuf> {
        match self {
            Program::Ranks(OfRanks::Pingpong(PingpongArgs { draw, .. }))
            | Program::Ranks(OfRanks::Coll(CollArgs { draw, .. }))
            | Program::Ranks(OfRanks::Ddt(DdtArgs { draw, .. }))
            | Program::Ranks(OfRanks::Paths(PathsArgs { draw, .. }))
            | Program::Pools(PoolsArgs { draw, .. })
            | Program::Serde(SerdeArgs { draw, .. }) => draw.svg.as_ref(),
            _ => None,
        }
    }
}

/// Parses the binding of ranks to cores.
fn bind(text: &str) -> Result<Bind, String> {
    let mut config = Config::default();
    config.read(&BIND, text).map_err(|_| "none of auto, core, none".to_owned())?;
    Ok(config.choice(&BIND))
}

/// Parses a number of ranks.
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

/// Parses a time.
fn milliseconds(text: &str) -> Result<f64, String> {
    const HOUR: f64 = 3.6e6;
    match text.parse::<f64>() {
        Ok(ms) if ms > HOUR => Err("more than an hour for each figure is not meant".to_owned()),
        Ok(ms) if ms > 0.0 => Ok(ms),
        _ => Err("a number of milliseconds above 0 is expected".to_owned()),
    }
}
