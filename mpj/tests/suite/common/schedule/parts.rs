//! The partitioned messages of a phase. An additional thread of each rank starts all its messages before it waits for
//! any.

use std::collections::BTreeMap;

use mpj::{Intracomm, PartitionedRecv, PartitionedSend};

use super::plan::CommPlan;
use super::random::{Random, mix, payload};
use super::wait::Failure;

#[derive(Debug)]
pub(super) struct PartsPlan {
    comm: usize,
    /// The sender and the receiver, as ranks of the communicator, and of the world.
    sender_receiver: [usize; 2],
    world_sender_receiver: [usize; 2],
    /// The number of parts of the sender and of the receiver.
    parts: [usize; 2],
    /// The length in bytes, a multiple of both numbers.
    len: usize,
}

pub(super) fn plan(random: &mut Random, comms: &[CommPlan]) -> Vec<PartsPlan> {
    let mut plans = Vec::new();
    for _ in 0..random.below(3) {
        let comm = &comms[random.below(comms.len())];
        let sender_receiver = [0; 2].map(|_| random.below(comm.members.len()));
        let parts = [0; 2].map(|_| 1 + random.below(6));
        let len = parts[0] * parts[1] * random.pick(&[0, 1, 7, 200, 3000]);
        plans.push(PartsPlan {
            comm: comm.id,
            sender_receiver,
            world_sender_receiver: sender_receiver.map(|rank| comm.members[rank]),
            parts,
            len,
        });
    }
    plans
}

/// This rank's requests of the partitioned messages, with the number of each message.
#[derive(Default)]
pub(super) struct Parts {
    sends: Vec<(usize, PartitionedSend<u8>)>,
    recvs: Vec<(usize, PartitionedRecv<u8>)>,
}

impl Parts {
    pub(super) fn new(
        plans: &[PartsPlan],
        comms: &BTreeMap<usize, Intracomm>,
        me: usize,
    ) -> Result<Self, Failure> {
        let mut own = Parts::default();
        for (number, plan) in plans.iter().enumerate() {
            // Messages of one tag match in the order of their creation.
            let tag = 1000 + (number % 2) as i32;
            if plan.world_sender_receiver[0] == me {
                let send = comms[&plan.comm].psend_init(
                    vec![0; plan.len],
                    plan.parts[0],
                    plan.sender_receiver[1],
                    tag,
                )?;
                own.sends.push((number, send));
            }
            if plan.world_sender_receiver[1] == me {
                let recv = comms[&plan.comm].precv_init(
                    vec![0; plan.len],
                    plan.parts[1],
                    plan.sender_receiver[0],
                    tag,
                )?;
                own.recvs.push((number, recv));
            }
        }
        Ok(own)
    }

    /// Sends and receives each message once.
    pub(super) fn run(&mut self, plans: &[PartsPlan], key: u64) -> Result<(), Failure> {
        let content = |number: usize| payload(mix(key ^ (number as u64 + 1)), plans[number].len);
        let mut random = Random::new(key);
        let mut arriving = Vec::new();
        for (number, recv) in &mut self.recvs {
            arriving.push((*number, recv.start()?));
        }
        let mut filling = Vec::new();
        for (number, send) in &mut self.sends {
            let (request, data, parts) = (send.start()?, content(*number), plans[*number].parts[0]);
            let mut order: Vec<usize> = (0..parts).collect();
            random.shuffle(&mut order);
            let fill = |part: &usize| -> mpj::Result<()> {
                let mut items = request.part(*part)?;
                let len = items.len();
                items.copy_from_slice(&data[part * len..][..len]);
                items.ready()
            };
            let (mine, others) = order.split_at(random.below(parts + 1));
            std::thread::scope(|threads| {
                let other = threads.spawn(|| others.iter().try_for_each(fill));
                mine.iter().try_for_each(fill)?;
                other.join().expect("it returns errors")
            })?;
            filling.push(request);
        }
        for (number, request) in arriving {
            let (data, parts) = (content(number), plans[number].parts[1]);
            let (part, len) = (random.below(parts), data.len() / parts);
            let arrived = loop {
                match request.part(part)? {
                    Some(items) => break items == &data[part * len..][..len],
                    None => std::thread::yield_now(),
                }
            };
            if !arrived || request.wait()? != data {
                return Err(format!("wrong data in {:?}", plans[number]).into());
            }
        }
        filling.into_iter().try_for_each(|request| request.wait())?;
        Ok(())
    }
}
