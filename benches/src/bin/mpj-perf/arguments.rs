//! The command line.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};
use mpj::config::Config;
use mpj::devices::cores::{BIND, Bind};
use mpj::pool::strategy::{STORAGES, STRATEGIES};

use crate::perf;

/// Maximum number of ranks in one process: with more, the ranks mostly wait for each other.
const MAX_THREADS: usize = 256;

/// Measures messages, collectives, datatypes, pools and codecs
///
/// Programs with ranks print comma-separated lines on rank 0 during the measurement; pools and serde print tables (with
/// --csv, lines). Lines that start with # are remarks. A launcher such as mpjrun starts the ranks; otherwise they are
/// threads of this process. Ranks that are threads are bound to their own cores if there are enough; processes keep the
/// binding of the launcher. mpj-perf PROGRAM --help lists the columns and options of a program.
///
/// Examples:
///
///   mpj-perf pingpong --svg p.svg            two ranks as threads, with a picture
///
///   mpj-perf coll 20 65536 -n 8 --svg c.svg  eight ranks, 20 ms per point, up to 64 KiB
///
///   mpjrun -n 2 mpj-perf ddt 3 8             two ranks as processes
///
///   mpjrun -n 2 --devices shmdev mpj-perf paths --svg shmdev.svg
///                                            buffered and zero-copy messages
///
///   mpj-perf pools --svg pools.svg           pools and allocators, without ranks
///
///   mpj-perf serde                           codecs and serializers, without ranks
#[derive(Debug, Parser)]
#[command(name = "mpj-perf", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) program: Program,
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Ranks {
    /// Number of ranks, as threads of this process; under a launcher, it must be the job's [default: 2, or the job's]
    #[arg(short = 'n', value_name = "RANKS", value_parser = ranks, allow_negative_numbers = true)]
    pub(crate) ranks: Option<usize>,
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct MeasureArgs {
    #[command(flatten)]
    pub(crate) ranks: Ranks,
    /// Cores of each rank that is a thread: auto (an equal share of the cores, if they are enough for all ranks), core
    /// (one core) or none (any core). For processes, use mpjrun --bind [default: MPJ_BIND, or auto]
    #[arg(long, value_name = "CORES", value_parser = bind)]
    pub(crate) bind: Option<Bind>,
    /// Prints the traffic of rank 0 by device and protocol at the end
    #[arg(long)]
    pub(crate) stats: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct DrawArgs {
    /// Draws the medians and their spread, with the machine and the date, to FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Program {
    #[command(flatten)]
    Ranks(RankProgram),
    /// Memory pools and other allocators, without ranks
    ///
    /// Strategies: magazine (the default pool), buddy (without thread caches), buddy-eager (merges at each free),
    /// buddy1 and buddy2 (of the mpjbuf paper), unpooled. Storages: pages and heap (the paper's direct and indirect
    /// buffers). Contenders run interleaved. A ratio is that of a contender's time to the time of the best contender of
    /// another strategy: the median of the rounds.
    ///
    /// POOL,test,strategy,storage,bytes,ns (median),ratio to best other
    ///
    /// POOLMEM,mix,strategy,storage,peak bytes requested,peak resident bytes,ratio
    Pools(PoolsArgs),
    /// Codecs of objects and other serializers, in one process without ranks
    ///
    /// Values: 100k f64 (also as plain memory, Raw), a mesh of nested vectors, log records. encode reuses memory,
    /// except bitcode with serde; decode drops the value. The feature comparators adds bincode, bitcode, rkyv, wincode.
    ///
    /// SERDE,value,codec,kind,direction,bytes,ns (median),ratio to best serde,to best,to memcpy (best serde: the best
    /// other serializer of another project that uses serde; best: also those with their own derives)
    Serde(SerdeArgs),
}

/// The programs that ranks run.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum RankProgram {
    /// Messages between two ranks: latency, rate and bandwidth
    ///
    /// Times are those of half a round trip.
    ///
    /// PP,variant,bytes,iterations,median us,min us,p99 us,MB/s (variant: same, rot: rotating, fresh: freshly written;
    /// used: all words of the buffers are written and read)
    ///
    /// RATE,bytes,window,M messages/s (median),best; BW,bytes,window,MB/s; RATE_BI and BIBW in both directions at once
    ///
    /// --payload: WHOLE,payload,shape,bytes,median us,min us,ratio (to a slice of the same size; for objects, to
    /// encoding, sending a slice and decoding)
    ///
    /// --threads: THREADS,threads,median us,M messages/s (8 bytes, windows of 64, the sum of all threads; the last line
    /// measures one thread again, because a rank that has used several threads takes locks)
    ///
    /// --pool: POOLPP,strategy,storage,bytes,median us,min us,p99 us,MB/s; POOLPPMEM,strategy,storage,MiB in regions,
    /// peak MiB in live and cached blocks,blocks,blocks that were not in the thread's cache
    Pingpong(PingpongArgs),
    /// Collectives of any number of ranks
    ///
    /// COLL,operation,ranks,bytes,iterations,median us,min us,us back to back (times of the slowest rank; bytes of the
    /// vector, or of the block of each rank). With --algorithms, the operation is OPERATION:ALGORITHM.
    Coll(CollArgs),
    /// Derived datatypes: packing, unpacking, and sending between two ranks
    ///
    /// DDT,pattern,bytes,GB/s of pack,manual,unpack,manual,memcpy,ratio of pack to manual,of unpack to manual
    ///
    /// DDTPP,pattern,bytes,us by datatype,manual,packed first,contiguous bytes (median half round trips)
    Ddt(DdtArgs),
    /// Data paths between two ranks: through pool blocks, or without copies
    ///
    /// Uses the device of the job (mpjrun --devices). Shapes: contiguous, strided and indexed elements, and objects;
    /// freshly written or unmodified.
    ///
    /// MEMCPY,bytes,median us,MB/s
    ///
    /// PATH,shape,fresh or same,bytes,path,median us,min us,p99 us,MB/s (half round trips); remarks at the end name the
    /// faster path of each shape by size, and compare auto with it
    Paths(PathsArgs),
    /// Finds the message size from which ibvdev should not copy, and writes it to a parameter file
    ///
    /// Run it with two ranks (mpjrun --devices ibvdev). The file sets IBV_REGISTER_MIN, the smallest size of a message
    /// that is not copied in its process. Jobs read the file that MPJ_CONFIG_FILE names.
    ///
    /// TUNE,device,bytes,us with and without copies (freshly written),the same two (unmodified),ratio
    Tune(TuneArgs),
    /// Many messages that match their receives in order and in reverse
    ///
    /// MATCH,queue,order,messages,median us,min us,ns per message (queue: the receives were posted, or the messages
    /// were unexpected; order: of the receives; reverse_any: in reverse, from any source)
    Matching(MatchingArgs),
    /// How much of a message of 4 MiB is transferred while both ranks compute
    ///
    /// Run it also with MPJ_PROGRESS=thread, with which a thread of each rank makes progress.
    ///
    /// OVERLAP,bytes,us of the transfer alone,us of the computation alone,us of both,per cent of the transfer that
    /// overlaps with the computation (medians)
    Overlap(OverlapArgs),
    /// Typed calls, requests, futures and sets, in messages of a rank to itself
    ///
    /// Run it with -n 1.
    ///
    /// CALL,name,median ns,min ns,max ns,name of the call to compare with,ns over it (for sending and receiving 8 bytes)
    Calls(MeasureArgs),
    /// Starts and ends a job
    Hello(Ranks),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PoolsArgs {
    /// Tests to run [default: all]
    #[arg(value_enum)]
    pub(crate) tests: Vec<perf::pools::AllocPattern>,
    /// Prints comma-separated lines instead of tables
    #[arg(long)]
    pub(crate) csv: bool,
    /// Milliseconds per contender and round
    #[arg(long = "time-ms", alias = "ms", value_name = "MS", default_value = "2", value_parser = milliseconds, allow_negative_numbers = true)]
    pub(crate) ms: f64,
    /// Number of rounds
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1001))]
    pub(crate) rounds: u16,
    /// Prints the memory of one contender
    #[arg(long, hide = true)]
    pub(crate) memory_of: Option<String>,
    #[command(flatten)]
    pub(crate) draw: DrawArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct SerdeArgs {
    /// Prints comma-separated lines instead of tables
    #[arg(long)]
    pub(crate) csv: bool,
    /// Milliseconds per codec and round
    #[arg(long = "time-ms", alias = "ms", value_name = "MS", default_value = "10", value_parser = milliseconds, allow_negative_numbers = true)]
    pub(crate) ms: f64,
    /// Number of rounds
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u16).range(1..=1001))]
    pub(crate) rounds: u16,
    #[command(flatten)]
    pub(crate) draw: DrawArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PingpongArgs {
    /// Milliseconds per point
    #[arg(default_value = "200", value_parser = milliseconds, allow_negative_numbers = true)]
    pub(crate) ms: f64,
    /// Limit in bytes; larger sizes of the fixed list are omitted
    #[arg(default_value_t = 16_777_216)]
    pub(crate) max_bytes: usize,
    /// MiB of memory in which buffers rotate; each rank allocates it twice
    #[arg(default_value_t = 128)]
    pub(crate) rotate_mib: usize,
    /// Measures only these payloads, comma-separated
    #[arg(long, alias = "what", value_enum, value_delimiter = ',', conflicts_with = "svg")]
    pub(crate) payload: Vec<perf::payloads::Payload>,
    /// Measures only 1, 2, 4 … up to this number of concurrent threads per rank, each with its own communicator
    #[arg(long, conflicts_with_all = ["payload", "svg"], value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) threads: Option<u16>,
    /// Measures only messages in blocks of these pools: strategies, comma-separated
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["payload", "threads"], value_parser = PossibleValuesParser::new(STRATEGIES))]
    pub(crate) pool: Vec<String>,
    /// Storages of these pools, comma-separated [default: pages]
    #[arg(long, value_delimiter = ',', requires = "pool", value_parser = PossibleValuesParser::new(STORAGES))]
    pub(crate) storage: Vec<String>,
    #[command(flatten)]
    pub(crate) run: MeasureArgs,
    #[command(flatten)]
    pub(crate) draw: DrawArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct CollArgs {
    /// Milliseconds per point
    #[arg(default_value = "100", value_parser = milliseconds, allow_negative_numbers = true)]
    pub(crate) ms: f64,
    /// Largest vector or block in bytes
    #[arg(default_value_t = 1_048_576)]
    pub(crate) max_bytes: usize,
    /// Measures every algorithm of each operation instead of those that the rules MPJ_COLL_* select
    #[arg(long)]
    pub(crate) algorithms: bool,
    #[command(flatten)]
    pub(crate) run: MeasureArgs,
    #[command(flatten)]
    pub(crate) draw: DrawArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct DdtArgs {
    /// Milliseconds per measurement of packing
    #[arg(default_value = "8", value_parser = milliseconds, allow_negative_numbers = true)]
    pub(crate) pack_ms: f64,
    /// Milliseconds per measurement of sending
    #[arg(default_value = "30", value_parser = milliseconds, allow_negative_numbers = true)]
    pub(crate) send_ms: f64,
    #[command(flatten)]
    pub(crate) run: MeasureArgs,
    #[command(flatten)]
    pub(crate) draw: DrawArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PathsArgs {
    /// Milliseconds per path and point
    #[arg(default_value = "40", value_parser = milliseconds, allow_negative_numbers = true)]
    pub(crate) ms: f64,
    /// Limit in bytes; larger sizes of the fixed list are omitted
    #[arg(default_value_t = 16_777_216)]
    pub(crate) max_bytes: usize,
    #[command(flatten)]
    pub(crate) run: MeasureArgs,
    #[command(flatten)]
    pub(crate) draw: DrawArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct TuneArgs {
    /// Parameter file to write; its other parameters are kept
    pub(crate) file: PathBuf,
    /// Milliseconds per point
    #[arg(default_value = "40", value_parser = milliseconds, allow_negative_numbers = true)]
    pub(crate) ms: f64,
    #[command(flatten)]
    pub(crate) run: MeasureArgs,
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct MatchingArgs {
    /// Limit on the number of messages; larger numbers of the fixed list are omitted
    #[arg(default_value_t = 100_000)]
    pub(crate) messages: usize,
    #[command(flatten)]
    pub(crate) run: MeasureArgs,
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct OverlapArgs {
    /// Milliseconds of the measurement
    #[arg(default_value = "500", value_parser = milliseconds, allow_negative_numbers = true)]
    pub(crate) ms: f64,
    #[command(flatten)]
    pub(crate) run: MeasureArgs,
}

impl RankProgram {
    pub(crate) fn measuring(&self) -> MeasureArgs {
        match self {
            RankProgram::Pingpong(PingpongArgs { run, .. })
            | RankProgram::Coll(CollArgs { run, .. })
            | RankProgram::Ddt(DdtArgs { run, .. })
            | RankProgram::Paths(PathsArgs { run, .. })
            | RankProgram::Tune(TuneArgs { run, .. })
            | RankProgram::Matching(MatchingArgs { run, .. })
            | RankProgram::Overlap(OverlapArgs { run, .. })
            | RankProgram::Calls(run) => *run,
            RankProgram::Hello(ranks) => MeasureArgs { ranks: *ranks, bind: Some(Bind::None), stats: false },
        }
    }
}

impl Program {
    /// Returns the file for the picture, if one was requested.
    pub(crate) fn svg(&self) -> Option<&PathBuf> {
        match self {
            Program::Ranks(RankProgram::Pingpong(PingpongArgs { draw, .. }))
            | Program::Ranks(RankProgram::Coll(CollArgs { draw, .. }))
            | Program::Ranks(RankProgram::Ddt(DdtArgs { draw, .. }))
            | Program::Ranks(RankProgram::Paths(PathsArgs { draw, .. }))
            | Program::Pools(PoolsArgs { draw, .. })
            | Program::Serde(SerdeArgs { draw, .. }) => draw.svg.as_ref(),
            _ => None,
        }
    }
}

fn bind(text: &str) -> Result<Bind, String> {
    let mut config = Config::default();
    config.set_text(&BIND, text).map_err(|_| "expected auto, core or none".to_owned())?;
    Ok(config.choice(&BIND))
}

fn ranks(text: &str) -> Result<usize, String> {
    let ranks: usize = text.parse().map_err(|_| "expected a number of ranks".to_owned())?;
    match ranks {
        0 => Err("expected at least 1 rank".to_owned()),
        1..=MAX_THREADS => Ok(ranks),
        _ => Err(format!("expected at most {MAX_THREADS} ranks; for more, use mpjrun and omit -n")),
    }
}

fn milliseconds(text: &str) -> Result<f64, String> {
    const HOUR: f64 = 3.6e6;
    match text.parse::<f64>() {
        Ok(ms) if ms > HOUR => Err("expected at most an hour (3600000)".to_owned()),
        Ok(ms) if ms > 0.0 => Ok(ms),
        _ => Err("expected a number of milliseconds above 0".to_owned()),
    }
}
