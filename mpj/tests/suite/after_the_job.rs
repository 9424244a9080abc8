//! Calls on a rank that leaves or has left its job.

use crate::common::{alive, job};
use mpj::{ANY_SOURCE, ANY_TAG, World};

#[test]
fn calls_on_a_world_after_its_job_fail() {
    let worlds = job(2, Ok::<World, String>).expect("no rank fails");
    for world in worlds {
        let other = 1 - world.rank();
        assert!(alive(|| world.recv(&mut [0u8], other, 0)).is_err());
        assert!(alive(|| world.probe(ANY_SOURCE, ANY_TAG)).is_err());
        assert!(alive(|| world.send(&vec![0u8; 1 << 20], other, 0)).is_err());
        assert!(alive(|| world.ssend(&[0u8], other, 0)).is_err());
        if world.rank() == 0 {
            assert!(alive(|| world.barrier()).is_err());
        }
    }
}

/// A rank that has left cannot get a message, not even from itself.
#[test]
fn receives_on_a_world_after_its_job_fail() {
    type Call = fn(&World) -> mpj::Result<()>;
    let calls: [(&str, Call); 12] = [
        ("recv", |w| w.recv(&mut [0u8], w.rank(), 2).map(drop)),
        ("irecv", |w| Ok(w.irecv([0u8], w.rank(), 2)?.wait().map(drop)?)),
        ("recv from any", |w| w.recv(&mut [0u8], ANY_SOURCE, 2).map(drop)),
        ("recv_vec", |w| w.recv_vec::<u8>(w.rank(), 3).map(drop)),
        ("recv_object", |w| w.recv_object::<u8>(ANY_SOURCE, 3).map(drop)),
        ("probe", |w| w.probe(w.rank(), 3).map(drop)),
        ("mprobe", |w| w.mprobe(w.rank(), 3).map(drop)),
        ("improbe", |w| w.improbe(w.rank(), 3).map(drop)),
        ("recv_init", |w| w.recv_init([0u8], w.rank(), 9)?.start()?.wait().map(drop)),
        ("precv_init", |w| w.precv_init(vec![0u8; 2], 1, w.rank(), 9)?.start()?.wait().map(drop)),
        ("self_comm", |w| w.self_comm()?.recv(&mut [0u8], ANY_SOURCE, 2).map(drop)),
        ("mprobe of self_comm", |w| w.self_comm()?.mprobe(ANY_SOURCE, 2).map(drop)),
    ];
    for ranks in [1, 2] {
        let worlds = job(ranks, Ok::<World, String>).expect("no rank fails");
        for (name, call) in calls {
            assert!(alive(|| call(&worlds[0])).is_err(), "{name} with {ranks} ranks");
        }
    }
}

/// A call that waits for a message of its own rank fails when the rank leaves.
#[test]
fn waiting_calls_fail_when_their_rank_leaves() {
    type Call = fn(&World) -> mpj::Result<()>;
    let calls: [Call; 3] = [
        |w| w.recv(&mut [0u8], w.rank(), 2).map(drop),
        |w| w.recv_vec::<u8>(w.rank(), 3).map(drop),
        |w| w.self_comm()?.mprobe(ANY_SOURCE, 2).map(drop),
    ];
    for call in calls {
        let threads = job(2, |world| {
            let own = world.clone();
            let waiting = std::thread::spawn(move || call(&own));
            world.barrier().map(|()| waiting)
        });
        for waiting in threads.expect("no rank fails") {
            assert!(alive(|| waiting.join().expect("no panic")).is_err());
        }
    }
}
