//! Ranks that exit normally.

use std::time::Duration;

use super::Member;
use super::owned::{Layout, bytes, random};
use crate::{ANY_SOURCE, ANY_TAG, Fault, Group, Mode, Pattern};

const RANK_0_LEFT: Fault = Fault::Left { rank: Some(0) };

pub(super) fn exit_fails_operations_that_need_the_rank(m: &Member) {
    if m.rank == 0 {
        m.barrier();
        return m.engine.close();
    }
    let anybody = m.irecv::<u8>(ANY_SOURCE, 2, 8);
    let receive = m.irecv::<u8>(0, 1, 100);
    let sends = [
        m.isend(0, 5, bytes(1, m.rendezvous_len())),
        m.issend(0, 5, bytes(1, 8)),
        m.issend(0, 5, Vec::new()),
    ];
    m.barrier();
    assert_eq!(m.engine.probe(&m.world, Pattern { source: 0, tag: 9 }), Err(RANK_0_LEFT));
    assert_eq!(receive.wait(m).0, Err(RANK_0_LEFT));
    sends.into_iter().for_each(|send| assert_eq!(send.wait(m), Err(RANK_0_LEFT)));
    for len in [0, 8, m.rendezvous_len()] {
        let data = vec![0u8; len];
        let layout = Layout::all(&data);
        assert_eq!(m.start(0, 1, data, layout, Mode::Standard).unwrap_err(), RANK_0_LEFT);
    }
    assert_eq!(m.irecv::<u8>(0, 1, 8).wait(m).0, Err(RANK_0_LEFT));
    if m.size == 2 {
        return assert_eq!(anybody.wait(m).0, Err(Fault::Left { rank: None }));
    }
    // The other ranks still exist, and receives from any source wait for them.
    let to = if m.next() == 0 { 1 } else { m.next() };
    m.send(to, 2, &[m.rank as u8; 8]);
    let from = if m.previous() == 0 { m.size - 1 } else { m.previous() };
    assert_eq!(m.received(anybody).1, [from as u8; 8]);
}

pub(super) fn any_source_receive_fails_when_all_others_have_exited(m: &Member) {
    m.barrier();
    if m.rank > 0 {
        return m.engine.close();
    }
    let gone = Fault::Left { rank: None };
    let any = Pattern { source: ANY_SOURCE, tag: ANY_TAG };
    assert_eq!(m.irecv::<u8>(ANY_SOURCE, ANY_TAG, 8).wait(m).0, Err(gone.clone()));
    assert_eq!(m.engine.probe(&m.world, any), Err(gone.clone()));
    assert_eq!(m.engine.mprobe(&m.world, any, "mprobe").unwrap_err(), gone);
}

/// The remote group exits, while the ranks of the local group still exchange messages in another channel.
pub(super) fn any_source_receive_needs_the_remote_group_only(m: &Member) {
    let first = m.size.div_ceil(3);
    let inter = m.join_inter(62, first);
    let pending = inter.irecv::<u8>(ANY_SOURCE, ANY_TAG, 8);
    m.barrier();
    if m.rank >= first {
        return m.engine.close();
    }
    assert_eq!(pending.wait(&inter).0, Err(Fault::Left { rank: None }));
    let own = m.join_also(63, Group::Range { first: 0, len: first }, m.rank);
    let send = own.isend(own.next(), 1, vec![m.rank; 3]);
    assert_eq!(own.recv::<u32>(own.previous() as i32, 1, 3).1, [own.previous(); 3]);
    send.wait(&own).unwrap();
}

/// A closing rank waits until its messages are transferred to ranks that are not closing. Eager messages can be
/// received after its exit.
pub(super) fn messages_sent_before_an_exit_arrive(m: &Member) {
    const MESSAGES: u64 = 1000;
    let len = |i: u64| if i % 100 == 50 { m.rendezvous_len() } else { (i % 70) as usize };
    if m.rank == 0 {
        let all = (0..MESSAGES).flat_map(|i| m.others().map(move |to| (i, to)));
        let sends: Vec<_> = all.map(|(i, to)| m.isend(to, 1, bytes(i + 1, len(i)))).collect();
        m.engine.close();
        assert!(sends.iter().all(super::Sending::has_ended), "close completes all sends");
        return;
    }
    std::thread::sleep(Duration::from_millis(30));
    for i in 0..MESSAGES {
        assert!(m.recv::<u8>(0, 1, m.rendezvous_len()).1 == bytes(i + 1, len(i)), "message {i}");
    }
    assert_eq!(m.irecv::<u8>(0, 1, 8).wait(m).0, Err(RANK_0_LEFT));
}

pub(super) fn pending_sends_fail_when_all_ranks_close(m: &Member) {
    let sends: Vec<_> = m
        .others()
        .flat_map(|to| [m.isend(to, 1, bytes(1, m.rendezvous_len())), m.issend(to, 1, bytes(1, 8))])
        .collect();
    m.barrier();
    m.engine.close();
    for send in sends {
        let outcome = send.wait(m);
        assert!(matches!(outcome, Err(Fault::Left { .. })), "{outcome:?}");
    }
}

pub(super) fn all_ranks_close_during_traffic(m: &Member) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let (outcome, _) = m.irecv::<u8>(ANY_SOURCE, ANY_TAG, m.rendezvous_len()).wait(m);
                match outcome {
                    Ok(_) => (),
                    Err(Fault::Left { rank: None } | Fault::Cancelled) => return,
                    // The sender of the matched message has cancelled it or has left.
                    Err(Fault::SendCancelled { .. } | Fault::Left { rank: Some(_) }) => (),
                    Err(other) => panic!("{other}"),
                }
            }
        });
        let mut state = u64::from(m.rank) + 1;
        let mut sends = Vec::new();
        for i in 0..400u64 {
            state = random(state);
            let to = m.others().nth(state as usize % (m.size as usize - 1)).unwrap();
            let len = if state >> 40 & 15 == 0 { m.rendezvous_len() } else { (state >> 32 & 127) as usize };
            let data = bytes(i + 1, len);
            let layout = Layout::all(&data);
            let mode = if state >> 50 & 3 == 0 { Mode::Synchronous } else { Mode::Standard };
            match m.start(to, 1, data, layout, mode) {
                Ok(send) => sends.push(send),
                Err(Fault::Left { rank: Some(_) }) => (),
                Err(other) => panic!("{other}"),
            }
        }
        m.engine.close();
        for send in sends {
            let outcome = send.wait(m);
            assert!(matches!(outcome, Ok(_) | Err(Fault::Left { .. })), "{outcome:?}");
        }
    });
}

pub(super) fn close_fails_a_synchronous_send_to_self(m: &Member) {
    let sends = [m.issend(m.rank, 1, bytes(1, 8)), m.issend(m.rank, 1, bytes(1, m.rendezvous_len()))];
    m.engine.close();
    for send in sends {
        assert!(send.has_ended());
        assert!(send.wait(m).is_err());
    }
}
