//! Counterparts of the methods for messages and requests.

use mpj::{Datatype, Waitable, World};

use super::called;

/// Returns the ranks after and before this one in a ring.
pub(super) fn ring(world: &World) -> (usize, usize) {
    let (rank, size) = (world.rank(), world.size());
    ((rank + 1) % size, (rank + size - 1) % size)
}

pub(super) fn blocking_messages(world: &World) -> mpj::Result<()> {
    let ((right, left), me) = (ring(world), world.rank() as i32);
    let mine = [10 * me, 10 * me + 1];
    let theirs = [10 * left as i32, 10 * left as i32 + 1];
    let mut got = [0i32; 2];
    let attached = world.attach(mpj::raw::BSEND_OVERHEAD + 8)?;
    world.bsend(&mine, right, 1)?;
    let status = world.probe(left, 1)?;
    assert_eq!((status.count::<i32>(), status.source(), status.tag()), (Some(2), Some(left), 1));
    assert_eq!(status.elements_of(&Datatype::of::<i32>()), Some(2));
    assert_eq!(world.recv(&mut got, left, 1)?.source_rank(), left);
    assert_eq!(got, theirs);
    attached.detach()?;
    if world.rank().is_multiple_of(2) {
        world.send(&mine, right, 2)?;
        world.ssend(&mine, right, 3)?;
    }
    if world.rank() % 2 == 1 {
        while world.iprobe(left, 2)?.is_none() {}
        for tag in [2, 3] {
            world.recv(&mut got, left, tag)?;
            assert_eq!(got, theirs);
        }
    }
    let receiving = world.irecv([0i32; 2], left, 4)?;
    world.barrier()?; // the receives are posted
    world.rsend(&mine, right, 4)?;
    assert_eq!(receiving.wait()?.0, theirs);
    world.sendrecv(&mine, right, 5, &mut got, left, 5)?;
    assert_eq!(got, theirs);
    let mut both = mine;
    world.sendrecv_replace(&mut both, right, 6, left, 6)?;
    assert_eq!(both, theirs);
    let packed = mpj::pack(&mine)?;
    assert_eq!(packed.len(), mpj::pack_size(&mine)?);
    mpj::unpack(&packed, &mut got)?;
    assert_eq!(got, mine);
    called("MPI", &["Buffer_attach", "Buffer_detach"]);
    called(
        "Comm",
        &["Send", "Bsend", "Ssend", "Rsend", "Recv", "Probe", "Iprobe", "Sendrecv", "Sendrecv_replace"],
    );
    called("Comm", &["Pack", "Unpack", "Pack_size"]);
    called("Status", &["Get_count", "Get_elements", "source", "tag"]);
    Ok(())
}

pub(super) fn requests(world: &World) -> mpj::Result<()> {
    let ((right, left), me) = (ring(world), world.rank() as u16);
    let attached = world.attach(mpj::raw::BSEND_OVERHEAD + 8)?;
    let receives = (0..4).map(|tag| world.irecv([0u16; 1], left, tag)).collect::<mpj::Result<Vec<_>>>()?;
    world.barrier()?;
    let sends = vec![
        world.isend([me], right, 0)?,
        world.ibsend([me], right, 1)?,
        world.issend([me], right, 2)?,
        world.irsend([me], right, 3)?,
    ];
    for outcome in mpj::wait_all(receives) {
        assert_eq!(outcome?.0, [left as u16]);
    }
    for outcome in mpj::wait_all(sends) {
        outcome?;
    }
    attached.detach()?;

    let receive = |tag| world.irecv([0u16; 1], left, tag);
    let mut pending = vec![receive(0)?, receive(1)?, receive(2)?, receive(3)?, receive(4)?];
    let mut single = receive(5)?;
    for tag in 0..6 {
        world.send(&[me + tag as u16], right, tag)?;
    }
    let (index, outcome) = mpj::wait_any(&mut pending).expect("five are pending");
    assert_eq!(outcome?.0, [(left + index) as u16]);
    let mut left_over = 4 - mpj::wait_some(&mut pending).len();
    while left_over > 0 {
        left_over -= usize::from(mpj::test_any(&mut pending).is_some());
        left_over -= mpj::test_some(&mut pending).len();
    }
    assert_eq!(mpj::test_all(&mut pending).map(|outcomes| outcomes.len()), Some(0));
    let mut two = vec![receive(6)?, receive(7)?];
    world.send(&[me + 6], right, 6)?;
    assert!(mpj::test_all(&mut two).is_none() && two.len() == 2);
    world.barrier()?; // all ranks have tested before the second message
    world.send(&[me + 7], right, 7)?;
    let both = loop {
        if let Some(outcomes) = mpj::test_all(&mut two) {
            break outcomes;
        }
    };
    assert!(two.is_empty());
    for (tag, outcome) in (6..).zip(both) {
        assert_eq!(outcome?.0, [left as u16 + tag]);
    }
    while single.test().is_none() {} // `None` until it is complete; afterwards the request is null
    assert!(single.wait().is_err());

    let never = world.irecv([0u16; 1], left, 99)?;
    assert!(never.cancel());
    assert!(never.wait().expect_err("it was cancelled").error().is_cancelled());
    drop(world.isend([me], right, 7)?); // freed: it completes by itself
    world.recv(&mut [0u16; 1], left, 7)?;
    let done = world.isend([me], right, 8)?;
    world.recv(&mut [0u16; 1], left, 8)?;
    assert!(done.request_ref().wait().is_ok());
    called("Comm", &["Isend", "Ibsend", "Issend", "Irsend", "Irecv", "Is_null"]);
    called("Request", &["Wait", "Test", "Cancel", "Is_null", "Free", "Waitall", "Waitany", "Waitsome"]);
    called("Request", &["Testall", "Testany", "Testsome"]);
    called("Status", &["Test_cancelled", "index"]);
    Ok(())
}

pub(super) fn persistent(world: &World) -> mpj::Result<()> {
    let ((right, left), me) = (ring(world), world.rank() as u64);
    let attached = world.attach(mpj::raw::BSEND_OVERHEAD + 8)?;
    let mut sends = [
        world.send_init([me], right, 0)?,
        world.bsend_init([me], right, 1)?,
        world.ssend_init([me], right, 2)?,
        world.rsend_init([me], right, 3)?,
    ];
    let mut receives =
        (0..4).map(|tag| world.recv_init([0u64; 1], left, tag)).collect::<mpj::Result<Vec<_>>>()?;
    for round in 0..3 {
        let receiving = mpj::start_all(&mut receives)?;
        world.barrier()?;
        for send in &mut sends {
            send.buffers_mut()[0] = me + round;
            send.start()?.wait()?;
        }
        for outcome in mpj::wait_all(receiving) {
            assert_eq!(*outcome?, [left as u64 + round]);
        }
    }
    attached.detach()?;
    called("Comm", &["Send_init", "Bsend_init", "Ssend_init", "Rsend_init", "Recv_init"]);
    called("Prequest", &["Start", "Startall"]);
    Ok(())
}
