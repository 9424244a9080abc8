//! One thread of a rank: makes the calls of its program, and records what its receives and probes return.

use std::collections::BTreeMap;

use mpj::{DataPath, Intracomm, PersistentRequest, Source, Status, Tag};

use super::calls::{Call, Path, Pattern, RecvBy, SendBy};
use super::phase::Phase;
use super::random::{Random, payload};
use super::wait::{Bytes, Failure, Pending, check_cancelled, poll, wait_for_all};

pub(super) type Persistent = BTreeMap<usize, PersistentRequest<Vec<u8>>>;

/// The result of a receive or a probe. The records of a thread have the order in which it posts the receives.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) pattern: Pattern,
    pub(super) outcome: Outcome,
}

#[derive(Debug)]
pub(super) enum Outcome {
    /// The operation with this number has not completed.
    Pending(usize),
    Received(Status, Vec<u8>),
    Seen(Status),
}

#[derive(Clone, Copy)]
pub(super) struct Lane<'a> {
    pub(super) comms: &'a BTreeMap<usize, Intracomm>,
    pub(super) phase: &'a Phase,
    pub(super) me: usize,
    pub(super) lane: usize,
    /// A message's payload depends on this number and on the number of the message.
    pub(super) key: u64,
    pub(super) is_last_round: bool,
}

impl Lane<'_> {
    pub(super) fn payload(&self, message: usize) -> Bytes {
        payload(self.key.wrapping_add((message as u64) << 32), self.phase.messages[message].len)
    }

    fn program(&self) -> &[Call] {
        &self.phase.programs[self.me][self.lane]
    }

    /// Creates the persistent requests of the program.
    pub(super) fn persistent(&self) -> Result<Persistent, Failure> {
        let mut requests = Persistent::new();
        for call in self.program() {
            match *call {
                Call::Send { op, message, by, path } if by.is_persistent() => {
                    let message = &self.phase.messages[message];
                    let (comm, data) = (self.comm(message.comm, path), vec![0; message.len]);
                    let init = match by {
                        SendBy::SsendInit => Intracomm::ssend_init,
                        SendBy::RsendInit => Intracomm::rsend_init,
                        SendBy::BsendInit => Intracomm::bsend_init,
                        _ => Intracomm::send_init,
                    };
                    requests.insert(op, init(&comm, data, message.to, message.tag)?);
                }
                Call::Recv { op, pattern, room, by: RecvBy::RecvInit, path } => {
                    let (source, tag) = address(&pattern);
                    let comm = self.comm(pattern.comm, path);
                    requests.insert(op, comm.recv_init(vec![0; room], source, tag)?);
                }
                _ => {}
            }
        }
        Ok(requests)
    }

    fn comm(&self, comm: usize, path: Path) -> Intracomm {
        let comm = &self.comms[&comm];
        match path {
            Path::Default => comm.clone(),
            Path::Auto => comm.with_path(DataPath::Auto),
            Path::Buffered => comm.with_path(DataPath::Buffered),
            Path::ZeroCopy => comm.with_path(DataPath::ZeroCopy),
        }
    }

    /// Makes the calls of one round, and returns the records of its receives and probes.
    pub(super) fn run(&self, persistent: &mut Persistent) -> Result<Vec<Record>, Failure> {
        let mut round = Round {
            lane: *self,
            unstarted: persistent.iter_mut().map(|(op, request)| (*op, request)).collect(),
            pending: BTreeMap::new(),
            records: Vec::new(),
            received: BTreeMap::new(),
        };
        for call in self.program() {
            round.make(call)?;
        }
        let Round { mut records, mut received, pending, .. } = round;
        received.extend(wait_for_all(pending, Random::new(self.key))?);
        for record in &mut records {
            if let Outcome::Pending(op) = record.outcome {
                let (data, status) = match persistent.get_mut(&op) {
                    Some(request) => (request.buffers_mut().clone(), request.status()),
                    None => received.remove(&op).expect("the operation has completed"),
                };
                record.outcome = Outcome::Received(status, data);
            }
        }
        Ok(records)
    }
}

fn address(pattern: &Pattern) -> (Source, Tag) {
    (pattern.source.map_or(Source::Any, Source::Rank), pattern.tag.map_or(Tag::Any, Tag::Value))
}

/// The state of a thread in a round.
struct Round<'a, 'p> {
    lane: Lane<'a>,
    /// The persistent requests that this round has not started.
    unstarted: BTreeMap<usize, &'p mut PersistentRequest<Bytes>>,
    pending: BTreeMap<usize, Pending<'p>>,
    records: Vec<Record>,
    /// The outcomes of receives, except those of persistent requests.
    received: BTreeMap<usize, (Bytes, Status)>,
}

impl Round<'_, '_> {
    fn make(&mut self, call: &Call) -> Result<(), Failure> {
        match *call {
            Call::Send { op, message, by, path } => self.send(op, message, by, path),
            Call::Recv { op, pattern, room, by, path } => {
                let comm = self.lane.comm(pattern.comm, path);
                match by.may_block() {
                    true => self.receive(&comm, pattern, room, by),
                    false => self.start_receive(&comm, op, pattern, room, by),
                }
            }
            Call::Wait { op, by } => {
                let operation = self.pending.remove(&op).ok_or("an operation was not started")?;
                self.received.extend(operation.wait(by)?.map(|done| (op, done)));
                Ok(())
            }
            Call::Exchange { send, received, replaces } => self.exchange(send, received, replaces),
            Call::Iprobe { pattern } => {
                let (source, tag) = address(&pattern);
                let found = self.lane.comm(pattern.comm, Path::Default).iprobe(source, tag)?;
                self.records.extend(found.map(|seen| Record { pattern, outcome: Outcome::Seen(seen) }));
                Ok(())
            }
            Call::CancelUnmatched { comm, tag } => {
                let request = self.lane.comm(comm, Path::Default).irecv(vec![0; 10], Source::Any, tag)?;
                match request.cancel() {
                    true => check_cancelled(request),
                    false => Err(format!("a receive has matched, but no message has tag {tag}").into()),
                }
            }
            Call::Free { comm } if self.lane.is_last_round => {
                Ok(self.lane.comm(comm, Path::Default).free()?)
            }
            Call::Free { .. } => Ok(()),
        }
    }

    fn send(&mut self, op: usize, number: usize, by: SendBy, path: Path) -> Result<(), Failure> {
        let message = &self.lane.phase.messages[number];
        let (to, tag, data) = (message.to, message.tag, self.lane.payload(number));
        let comm = self.lane.comm(message.comm, path);
        let request = match by {
            SendBy::Send => return Ok(comm.send(&data, to, tag)?),
            SendBy::Ssend => return Ok(comm.ssend(&data, to, tag)?),
            SendBy::Rsend => return Ok(comm.rsend(&data, to, tag)?),
            SendBy::Bsend => return Ok(comm.bsend(&data, to, tag)?),
            SendBy::Scope => {
                return comm.scope(|scope| Ok(scope.isend(&data, to, tag)?.wait().map(drop)?));
            }
            SendBy::Isend => comm.isend(data, to, tag)?,
            SendBy::Issend => comm.issend(data, to, tag)?,
            SendBy::Irsend => comm.irsend(data, to, tag)?,
            SendBy::Ibsend => comm.ibsend(data, to, tag)?,
            SendBy::SendObject => return Ok(comm.send_object(&data, to, tag)?),
            SendBy::IsendObject => {
                self.pending.insert(op, Pending::SendObject(comm.isend_object(&data, to, tag)?));
                return Ok(());
            }
            SendBy::SendInit | SendBy::SsendInit | SendBy::RsendInit | SendBy::BsendInit => {
                let request = self.unstarted.remove(&op).expect("one start in a round");
                *request.buffers_mut() = data;
                self.pending.insert(op, Pending::Persistent(request.start()?));
                return Ok(());
            }
        };
        self.pending.insert(op, Pending::Send(request));
        Ok(())
    }

    fn receive(
        &mut self,
        comm: &Intracomm,
        pattern: Pattern,
        room: usize,
        by: RecvBy,
    ) -> Result<(), Failure> {
        let ((source, tag), mut data) = (address(&pattern), vec![0; room]);
        let mut see = |status: Status| {
            self.records.push(Record { pattern, outcome: Outcome::Seen(status) });
            status
        };
        let status = match by {
            RecvBy::RecvVec => {
                let (all, status) = comm.recv_vec(source, tag)?;
                data = all;
                status
            }
            RecvBy::RecvObject => {
                let (object, status) = comm.recv_object(source, tag)?;
                data = object;
                status
            }
            RecvBy::Scope => {
                comm.scope(|scope| Ok::<_, Failure>(scope.irecv(&mut data, source, tag)?.wait()?.1))?
            }
            RecvBy::Probe => {
                let seen = see(comm.probe(source, tag)?);
                comm.recv(&mut data, seen, seen.tag())?
            }
            RecvBy::Iprobe => {
                let seen = see(poll(|| comm.iprobe(source, tag))?);
                comm.recv(&mut data, seen, seen.tag())?
            }
            RecvBy::Mprobe => comm.mprobe(source, tag)?.recv(&mut data)?,
            RecvBy::Improbe => {
                let (all, status) = poll(|| comm.improbe(source, tag))?.recv_vec()?;
                data = all;
                status
            }
            _ => comm.recv(&mut data, source, tag)?,
        };
        self.records.push(Record { pattern, outcome: Outcome::Received(status, data) });
        Ok(())
    }

    fn start_receive(
        &mut self,
        comm: &Intracomm,
        op: usize,
        pattern: Pattern,
        room: usize,
        by: RecvBy,
    ) -> Result<(), Failure> {
        let (source, tag) = address(&pattern);
        self.records.push(Record { pattern, outcome: Outcome::Pending(op) });
        let post = || comm.irecv(vec![0; room], source, tag);
        let pending = match by {
            RecvBy::RecvInit => {
                let request = self.unstarted.remove(&op).expect("one start in a round");
                request.buffers_mut().fill(0);
                Pending::Persistent(request.start()?)
            }
            RecvBy::IrecvObject => Pending::RecvObject(comm.irecv_object(source, tag)?),
            RecvBy::CancelledIrecv => {
                let request = post()?;
                if request.cancel() {
                    check_cancelled(request)?;
                    Pending::Recv(post()?)
                } else {
                    Pending::Recv(request)
                }
            }
            _ => Pending::Recv(post()?),
        };
        self.pending.insert(op, pending);
        Ok(())
    }

    fn exchange(&mut self, send: usize, received: usize, replaces: bool) -> Result<(), Failure> {
        let messages = &self.lane.phase.messages;
        let (mine, theirs) = (&messages[send], &messages[received]);
        let comm = self.lane.comm(mine.comm, Path::Default);
        let mut data = self.lane.payload(send);
        let status = if replaces {
            comm.sendrecv_replace(&mut data, mine.to, mine.tag, theirs.from, theirs.tag)?
        } else {
            let sent = std::mem::replace(&mut data, vec![0; theirs.len]);
            comm.sendrecv(&sent, mine.to, mine.tag, &mut data, theirs.from, theirs.tag)?
        };
        let pattern = Pattern {
            comm: theirs.comm,
            to: theirs.to,
            lane: theirs.lane,
            source: Some(theirs.from),
            tag: Some(theirs.tag),
        };
        self.records.push(Record { pattern, outcome: Outcome::Received(status, data) });
        Ok(())
    }
}
