//! A ping-pong between two processes over a reliable connection of crate `ibverbs`, to compare with `mpj-perf pingpong`
//! over `ibvdev`.
//!
//! ```text
//!   pingpong [MILLISECONDS FOR EACH SIZE, 300] [LARGEST MESSAGE IN BYTES, 4194304]
//! ```
//! It prints lines `PP,same,bytes,iterations,median us,least us,99 % us,MB/s`, like `mpj-perf pingpong`. The times are
//! half round trips, with one send buffer and one receive buffer. Both processes use the first device. They exchange
//! their addresses through the pipes of the second process.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use ibverbs::{CompletionQueue, Context, MemoryRegion, QueuePair, QueuePairEndpoint, ibv_wc};
use ibverbs_sys::{IBV_GID_TYPE_ROCE_V2, ibv_gid, ibv_qp_type};

type Failure = Box<dyn Error>;

/// The sizes of messages in bytes, without 0: the crate cannot send without a scatter/gather element, and some adapters
/// interpret the length 0 of an element as 2 GiB.
const SIZES: [usize; 17] = [
    1, 8, 64, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131_072, 262_144, 524_288, 1_048_576,
    4_194_304, 16_777_216,
];
/// The argument of the process that replies.
const REPLY: &str = "--reply";
/// The number of polls after which a waiting process yields its core at each poll.
const SPINS: usize = 200;
const SENT: u64 = 1;
const RECEIVED: u64 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((first, [max_bytes])) if first == REPLY => reply(max_bytes),
        _ => lead(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("pingpong: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Starts the other process, and times messages to it and back.
fn lead(arguments: &[String]) -> Result<(), Failure> {
    let [time, max_bytes] = match arguments {
        [] => [300, 4 << 20],
        [time] => [time.parse()?, 4 << 20],
        [time, max_bytes] => [time.parse()?, max_bytes.parse()?],
        _ => {
            return Err(
                "expected at most two arguments: milliseconds for each size, and the largest message".into(),
            );
        }
    };
    let mut other = Command::new(std::env::current_exe()?)
        .args([REPLY, &max_bytes.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let to = other.stdin.take().expect("it is piped");
    let from = BufReader::new(other.stdout.take().expect("it is piped"));
    connected(max_bytes, to, from, |end| {
        println!("# crate ibverbs 0.9.2, device {}", end.device);
        println!("# PP,variant,bytes,iterations,median us,least us,99 % us,MB/s");
        for bytes in SIZES.into_iter().filter(|bytes| *bytes <= max_bytes) {
            end.write_line("20")?;
            let start = Instant::now();
            end.lead(bytes, 20, |_| ())?;
            let budget = Duration::from_millis(time as u64).as_secs_f64();
            let iterations = ((budget / (start.elapsed().as_secs_f64() / 20.0)) as usize).clamp(10, 200_000);
            let mut times = Vec::with_capacity(iterations);
            end.write_line(&iterations.to_string())?;
            end.lead(bytes, iterations, |time| times.push(time.as_secs_f64() * 1e6 / 2.0))?;
            times.sort_unstable_by(f64::total_cmp);
            let at = |share: f64| times[(share * (times.len() - 1) as f64 + 0.5) as usize];
            let (median, least, p99) = (at(0.5), at(0.0), at(0.99));
            println!(
                "PP,same,{bytes},{iterations},{median:.3},{least:.3},{p99:.3},{:.1}",
                bytes as f64 / median
            );
        }
        Ok(())
    })?;
    match other.wait()? {
        ended if ended.success() => Ok(()),
        ended => Err(format!("the replying process: {ended}").into()),
    }
}

/// Replies to the messages of the other process, for all sizes.
fn reply(max_bytes: &str) -> Result<(), Failure> {
    let max_bytes = max_bytes.parse()?;
    connected(max_bytes, std::io::stdout(), BufReader::new(std::io::stdin()), |end| {
        for bytes in SIZES.into_iter().filter(|bytes| *bytes <= max_bytes) {
            for _ in 0..2 {
                let iterations = end.read_line()?.parse()?;
                end.reply(bytes, iterations)?;
            }
        }
        Ok(())
    })
}

struct End<'a, W, R> {
    device: String,
    queue: &'a CompletionQueue<'a>,
    pair: QueuePair<'a>,
    send: MemoryRegion<u8>,
    recv: MemoryRegion<u8>,
    to: W,
    from: R,
    /// Whether the completion of the last send is outstanding.
    sending: bool,
    /// Whether a message has arrived that `wait_for_message` has not reported yet.
    received: bool,
}

/// Opens the first device, connects a queue pair with the process at the other end of the pipes, and runs `body`.
fn connected<W: Write, R: BufRead>(
    max_bytes: usize,
    mut to: W,
    mut from: R,
    body: impl FnOnce(&mut End<'_, W, R>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let devices = ibverbs::devices()?;
    let device = devices.get(0).ok_or("there is no RDMA device")?;
    let name = device.name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let context = device.open()?;
    let queue = context.create_cq(16, 0)?;
    let domain = context.alloc_pd()?;
    let mut builder = domain.create_qp(&queue, &queue, ibv_qp_type::IBV_QPT_RC);
    // The default timeout of the crate is too short for an emulated processor.
    builder.set_max_send_wr(2).set_max_recv_wr(2).set_timeout(14).set_retry_count(7).set_rnr_retry(7);
    if let Some(index) = gid_index(&context) {
        builder.set_gid_index(index);
    }
    let prepared = builder.build()?;
    let mine = prepared.endpoint();
    let gid = mine.gid.map_or_else(String::new, |gid| {
        let gid = ibv_gid::from(gid);
        // SAFETY: every bit pattern is a valid byte array.
        let raw = unsafe { gid.raw };
        format!("{:032x}", u128::from_be_bytes(raw))
    });
    writeln!(to, "{} {} {gid}", mine.num, mine.lid)?;
    to.flush()?;
    let theirs = endpoint(&line(&mut from)?)?;
    let pair = prepared.handshake(theirs)?;
    let (send, recv) = (domain.allocate(max_bytes.max(1))?, domain.allocate(max_bytes.max(1))?);
    body(&mut End {
        device: name,
        queue: &queue,
        pair,
        send,
        recv,
        to,
        from,
        sending: false,
        received: false,
    })
}

/// Returns the index of the GID of an IPv4 address with RoCE v2, if any. InfiniBand does not need one.
fn gid_index(context: &Context) -> Option<u32> {
    let is_ipv4 = |gid: ibv_gid| {
        // SAFETY: every bit pattern is a valid byte array.
        let raw = unsafe { gid.raw };
        raw.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff])
    };
    let mut entries = context.gid_table().iter();
    entries
        .find(|entry| entry.gid_type == IBV_GID_TYPE_ROCE_V2 && is_ipv4(entry.gid.into()))
        .map(|entry| entry.gid_index)
}

fn endpoint(line: &str) -> Result<QueuePairEndpoint, Failure> {
    let mut words = line.split(' ');
    let mut next = || words.next().ok_or("the other process sent an incomplete line");
    let (num, lid, gid) = (next()?.parse()?, next()?.parse()?, next()?);
    let gid = match gid {
        "" => None,
        gid => Some(ibv_gid { raw: u128::from_str_radix(gid, 16)?.to_be_bytes() }.into()),
    };
    Ok(QueuePairEndpoint { num, lid, gid })
}

fn line(from: &mut impl BufRead) -> Result<String, Failure> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Err("the other process has ended".into());
    }
    Ok(line.trim_end_matches('\n').to_owned())
}

impl<W: Write, R: BufRead> End<'_, W, R> {
    fn write_line(&mut self, word: &str) -> Result<(), Failure> {
        writeln!(self.to, "{word}")?;
        Ok(self.to.flush()?)
    }

    fn read_line(&mut self) -> Result<String, Failure> {
        line(&mut self.from)
    }

    /// Sends messages, waits for each reply, and passes each round-trip time to `taken`.
    fn lead(&mut self, bytes: usize, times: usize, mut taken: impl FnMut(Duration)) -> Result<(), Failure> {
        self.read_line()?;
        for _ in 0..times {
            let start = Instant::now();
            self.post_receive(0..bytes)?;
            self.post_send(0..bytes)?;
            self.wait_for_message()?;
            taken(start.elapsed());
        }
        Ok(())
    }

    /// Waits for messages and sends one back for each.
    fn reply(&mut self, bytes: usize, times: usize) -> Result<(), Failure> {
        self.post_receive(0..bytes)?;
        self.write_line("ready")?;
        for i in 0..times {
            self.wait_for_message()?;
            if i + 1 < times {
                self.post_receive(0..bytes)?;
            }
            self.post_send(0..bytes)?;
        }
        // The last reply must have been sent before this process exits.
        self.wait_until_sent()
    }

    fn post_send(&mut self, range: Range<usize>) -> Result<(), Failure> {
        self.wait_until_sent()?;
        self.sending = true;
        // SAFETY: the memory is registered, lives as long as the queue pair, and is never written to.
        Ok(unsafe { self.pair.post_send(&mut self.send, range, SENT) }?)
    }

    fn post_receive(&mut self, range: Range<usize>) -> Result<(), Failure> {
        // SAFETY: the memory is registered, lives as long as the queue pair, and is never read.
        Ok(unsafe { self.pair.post_receive(&mut self.recv, range, RECEIVED) }?)
    }

    fn wait_for_message(&mut self) -> Result<(), Failure> {
        self.wait(|end| std::mem::take(&mut end.received))
    }

    fn wait_until_sent(&mut self) -> Result<(), Failure> {
        self.wait(|end| !end.sending)
    }

    /// Polls until `done` returns true.
    fn wait(&mut self, done: impl Fn(&mut Self) -> bool) -> Result<(), Failure> {
        let mut completions = [ibv_wc::default(); 4];
        let mut polls = 0;
        while !done(self) {
            for completion in self.queue.poll(&mut completions)? {
                if let Some((status, vendor)) = completion.error() {
                    return Err(format!("a work request failed: status {status}, {vendor}").into());
                }
                match completion.wr_id() {
                    SENT => self.sending = false,
                    _ => self.received = true,
                }
            }
            // Soft-RoCE runs on the same cores, so a process must not only spin.
            polls += 1;
            if polls > SPINS {
                std::thread::yield_now();
            }
        }
        Ok(())
    }
}
