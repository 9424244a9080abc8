//! Ranks that die: operations that need them fail, and the other ranks continue.

use std::sync::Arc;

use mpj_datatypes::Datatype;

use super::Member;
use super::owned::{Layout, bytes, keep_for_ever};
use crate::{ANY_SOURCE, ANY_TAG, Exit, Fault, Group, Mode, Pattern};

fn assert_dead<T: std::fmt::Debug>(outcome: Result<T, Fault>, what: &str) {
    assert!(matches!(outcome, Err(Fault::Dead { rank: 0, .. })), "{what}: {outcome:?}");
}

/// The tag of a message that notifies rank 0 that its sender has left the barrier.
const PAST_BARRIER: i32 = 1 << 20;

/// Makes rank 0 die after all ranks have left a barrier; its engine stays in memory. Returns whether this is rank 0.
fn rank_0_dies(m: &Member) -> bool {
    let dies = rank_0_is_ready_to_die(m);
    if dies {
        keep_for_ever(Arc::clone(&m.engine));
        m.report_dead();
    } else {
        m.send(0, PAST_BARRIER, &[0u8]);
    }
    dies
}

/// Waits in a barrier, and on rank 0 until all other ranks have left it. Returns whether this is rank 0.
fn rank_0_is_ready_to_die(m: &Member) -> bool {
    m.barrier();
    if m.rank == 0 {
        m.others().for_each(|from| drop(m.recv::<u8>(from as i32, PAST_BARRIER, 1)));
    }
    m.rank == 0
}

fn wait_until_death_is_known(m: &Member) {
    while m.world.broken().is_none() {
        m.engine.progress();
    }
}

/// A death fails all pending operations of its channel, even those that do not need the dead rank.
pub(super) fn death_fails_all_pending_operations(m: &Member) {
    if m.rank == 0 {
        rank_0_dies(m);
        return;
    }
    let receives = [(0, 1), (ANY_SOURCE, 2), (m.next() as i32, 3), (m.rank as i32, ANY_TAG)]
        .map(|(source, tag)| m.irecv::<u8>(source, tag, 100));
    let sends = [
        m.isend(0, 5, bytes(1, m.rendezvous_len())),
        m.issend(0, 5, bytes(1, 8)),
        m.issend(0, 5, bytes(1, m.protocol_limits()[0])),
        m.issend(m.next(), 6, bytes(1, m.rendezvous_len())),
        m.issend(m.rank, 7, bytes(1, 8)),
    ];
    rank_0_dies(m);
    std::thread::scope(|scope| {
        let probe = |tag| Pattern { source: 0, tag };
        scope.spawn(move || assert_dead(m.engine.probe(&m.world, probe(9)), "probe"));
        scope.spawn(move || assert_dead(m.engine.mprobe(&m.world, probe(9), "mprobe"), "mprobe"));
        scope.spawn(move || {
            let any = Pattern { source: ANY_SOURCE, tag: 9 };
            assert_dead(m.engine.probe(&m.world, any), "probe of any source");
        });
    });
    receives.into_iter().enumerate().for_each(|(i, receive)| match i {
        // The message of the rank to itself arrived before the death.
        3 => assert_eq!(receive.wait(m).0.map(|e| e.bytes), Ok(8)),
        _ => assert_dead(receive.wait(m).0, "receive"),
    });
    sends.into_iter().enumerate().for_each(|(i, send)| match i {
        4 => assert!(send.wait(m).is_ok()),
        _ => assert_dead(send.wait(m), "send"),
    });
    assert_eq!(m.engine.first_death().map(|d| d.0), Some(0));
    let data = vec![0u8; 8];
    let layout = Layout::all(&data);
    assert_dead(m.start(m.next(), 1, data, layout, Mode::Standard), "a new send");
    assert_dead(m.irecv::<u8>(m.next() as i32, 1, 8).wait(m).0, "a new receive");
}

/// Rank 1 reports that it has lost rank 0, which still runs. The calls of rank 0 fail like those of the other ranks.
pub(super) fn rank_that_others_have_lost_fails_too(m: &Member) {
    let pending = m.irecv::<u8>(ANY_SOURCE, 1, 8);
    if rank_0_is_ready_to_die(m) {
        keep_for_ever(Arc::clone(&m.engine));
        m.send(1, 2, &[0u8]);
    } else {
        m.send(0, PAST_BARRIER, &[0u8]);
    }
    if m.rank == 1 {
        m.recv::<u8>(0, 2, 1);
        m.roster().report(0, Exit::Died("it is lost".into()));
    }
    assert_dead(pending.wait(m).0, "receive");
    if m.rank == 0 {
        let data = vec![0u8; 8];
        let layout = Layout::all(&data);
        assert_dead(m.start(m.next(), 1, data, layout, Mode::Standard), "a new send");
        m.report_dead();
    }
}

pub(super) fn death_spares_channels_without_the_dead_rank(m: &Member) {
    if m.rank == 0 {
        rank_0_dies(m);
        return;
    }
    let rest = m.join_also(60, Group::Range { first: 1, len: m.size - 1 }, m.rank - 1);
    let pending = rest.irecv::<u8>(rest.previous() as i32, 99, 8);
    rank_0_dies(m);
    wait_until_death_is_known(m);
    for i in 0..200 {
        let len = if i % 20 == 0 { m.rendezvous_len() } else { 40 };
        let send = rest.isend(rest.next(), 1, bytes(i + 1, len));
        assert!(rest.recv::<u8>(rest.previous() as i32, 1, len).1 == bytes(i + 1, len));
        send.wait(&rest).unwrap();
    }
    rest.send(rest.next(), 99, &[1u8; 8]);
    assert_eq!(rest.received(pending).1, [1; 8]);
}

/// Rank 0 is in the first group: its death fails the operations of both groups.
pub(super) fn death_in_either_group_breaks_an_intercommunicator(m: &Member) {
    let inter = m.join_inter(61, m.size.div_ceil(3));
    let pending = inter.irecv::<u8>((inter.size - 1) as i32, 99, 8);
    if rank_0_dies(m) {
        keep_for_ever(pending);
        return;
    }
    assert_dead(pending.wait(&inter).0, "a receive from the remote group");
    assert_dead(inter.irecv::<u8>(ANY_SOURCE, 99, 8).wait(&inter).0, "a receive from any source");
}

/// The receive of a dead rank's rendezvous message fails or succeeds, but does not hang.
pub(super) fn rendezvous_message_of_a_dead_rank_does_not_hang(m: &Member) {
    let len = m.rendezvous_len();
    if m.rank == 0 {
        for to in m.others() {
            keep_for_ever([m.isend(to, 1, bytes(3, len)), m.isend(to, 1, bytes(3, len))]);
        }
        rank_0_dies(m);
        return;
    }
    rank_0_dies(m);
    wait_until_death_is_known(m);
    let (outcome, got) = m.irecv::<u8>(0, 1, len).wait(m);
    assert!(outcome.is_err() || got == bytes(3, len));
    let strided = Datatype::of::<u8>().vector(len, 1, 2).unwrap();
    let (outcome, _) = m.post(0, 1, vec![0u8; 2 * len], Layout::typed(1, &strided)).wait(m);
    if let Err(fault) = outcome {
        assert_dead::<()>(Err(fault), "a rendezvous message");
    }
}

pub(super) fn messages_sent_before_a_death_arrive(m: &Member) {
    const MESSAGES: u64 = 100;
    if m.rank == 0 {
        for i in 0..MESSAGES {
            m.others().for_each(|to| m.send(to, 1, &[i; 4]));
        }
        rank_0_dies(m);
        return;
    }
    rank_0_dies(m);
    wait_until_death_is_known(m);
    for i in 0..MESSAGES {
        assert_eq!(m.recv::<u64>(0, 1, 4).1, [i; 4]);
    }
    assert_dead(m.irecv::<u64>(0, 1, 4).wait(m).0, "one more");
}

pub(super) fn returned_memory_is_not_written_after_a_death(m: &Member) {
    dies_while_others_receive(m);
}

/// Like [`returned_memory_is_not_written_after_a_death`], but the connections of the dead rank stay open, as those of a
/// disconnected host do.
pub(super) fn death_ends_bodies_of_an_open_connection(m: &Member) {
    if m.rank == 0 {
        keep_for_ever(Arc::clone(&m.engine));
    }
    dies_while_others_receive(m);
}

fn dies_while_others_receive(m: &Member) {
    const MESSAGES: u64 = 6;
    let len = 2 * m.rendezvous_len();
    let to = m.others().filter(|rank| *rank != 0);
    let sends = to.flat_map(|to| (0..MESSAGES).map(move |i| m.isend(to, 1, bytes(i + 1, len))));
    keep_for_ever(sends.collect::<Vec<_>>());
    if rank_0_is_ready_to_die(m) {
        // The return drops the engine and its connections while the others receive, unless the case keeps the engine.
        m.report_dead();
        return;
    }
    let receives: Vec<_> = (0..MESSAGES)
        .flat_map(|i| m.others().map(move |from| (i, from)))
        .map(|(i, from)| (i, m.irecv::<u8>(from as i32, 1, len)))
        .collect();
    m.send(0, PAST_BARRIER, &[0u8]);
    let mut returned = Vec::new();
    for (i, receive) in receives {
        let (outcome, mut memory) = receive.wait(m);
        match outcome {
            Ok(_) => assert!(memory == bytes(i + 1, len), "message {i}"),
            Err(fault) => assert_dead::<()>(Err(fault), "a rendezvous message"),
        }
        memory.fill(0x11);
        returned.push(memory);
    }
    wait_until_death_is_known(m);
    for _ in 0..1000 {
        m.engine.progress();
    }
    assert!(returned.iter().all(|memory| memory.iter().all(|byte| *byte == 0x11)), "a late write");
}

pub(super) fn close_succeeds_after_flooding_a_dead_rank(m: &Member) {
    if rank_0_dies(m) {
        return;
    }
    let mut pending = Vec::new();
    for i in 0..3000 {
        let data = vec![0u8; if i % 2 == 0 { 8 } else { m.rendezvous_len() }];
        let layout = Layout::all(&data);
        match m.start(0, 1, data, layout, Mode::Standard) {
            Ok(send) => pending.push(send),
            Err(fault) => assert_dead::<()>(Err(fault), "a send to a dead rank"),
        }
    }
    for send in pending {
        match send.wait(m) {
            Ok(_) => (),
            Err(fault) => assert_dead::<()>(Err(fault), "a send to a dead rank"),
        }
    }
    m.engine.close();
}
